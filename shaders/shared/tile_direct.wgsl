// A tile of {{ bm }} x {{ bn }} values of C = A B by a workgroup of {{ workgroup_size }} threads, one column in {{ workgroup_size }} a thread: no workgroup
// memory and no barrier. The form for Vulkan in software, where each load costs as much as dozens of products and
// workgroup memory is no faster than any other. With 8 lanes each load of A is shared by the subgroup: a thread loads
// one row in 8 and gets the others from its neighbours. Sums in f32, k ascending.
//
// The file that includes it defines what `tile_staged` lists.

// Computes and stores the tile at row0, col0, for k from k_begin to k_end. Call it once, by all threads.
fn tile(thread: u32, row0: u32, col0: u32, k_begin: u32, k_end: u32) {
//!for i in {{ a_slots }}
    prepare_a({{ i }}u, row0 + {{ i }}u * {{ lanes }}u + thread % {{ lanes }}u);
//!end
//!for j in {{ b_slots }}
    prepare_b({{ j }}u, col0 + {{ j }}u * {{ workgroup_size }}u + thread);
//!end
//!for slot in {{ a_slots }}
//!for lane in {{ lanes }}
//!for j in {{ tn }}
    var sum_{{ slot }}_{{ lane }}_{{ j }} = 0.0;
//!end
//!end
//!end
    for (var k = k_begin; k < k_end; k++) {
        at_b(k);
//!for j in {{ tn }}
        let b_{{ j }} = load_b({{ j }}u, k);
//!end
        at_a(k);
//!for slot in {{ a_slots }}
        let a_{{ slot }} = load_a({{ slot }}u, k);
//!for lane in {{ lanes }}
        {
            let a = {{ shared_a }};
//!for j in {{ tn }}
            sum_{{ slot }}_{{ lane }}_{{ j }} = fma(a, b_{{ j }}, sum_{{ slot }}_{{ lane }}_{{ j }});
//!end
        }
//!end
//!end
    }
    // A loop, because `store` written out for every value takes long to compile.
    var sums: array<f32, {{ bm }} * {{ tn }}>;
//!for slot in {{ a_slots }}
//!for lane in {{ lanes }}
//!for j in {{ tn }}
    sums[({{ slot }} * {{ lanes }} + {{ lane }}) * {{ tn }} + {{ j }}] = sum_{{ slot }}_{{ lane }}_{{ j }};
//!end
//!end
//!end
    for (var place = 0u; place < {{ bm }}u * {{ tn }}u; place++) {
        store(row0 + place / {{ tn }}u, col0 + place % {{ tn }}u * {{ workgroup_size }}u + thread, sums[place]);
    }
}
