// A tile of {{ bm }} x {{ bn }} values of C = A B by a workgroup of {{ workgroup_size }} threads, {{ tm }} x {{ tn }} of them a thread: operands
// through workgroup memory, {{ bk }} of k at a time. The form for GPUs. Sums in f32, k ascending.
//
// The file that includes it defines (`tile_direct` asks for the same)
//   fn prepare_a(slot: u32, row: u32), fn prepare_b(slot: u32, col: u32)   before the loop, for each row and column that
//       a thread loads; what is worth dividing once goes to private arrays of {{ a_slots }} and {{ b_slots }}. Rows and columns may lie
//       beyond the matrix: clamp them, their sums are not to be stored.
//   fn at_a(k: u32), fn at_b(k: u32)   before the loads of one k
//   fn load_a(slot: u32, k: u32) -> f32, fn load_b(slot: u32, k: u32) -> f32   one operand; k_begin <= k < k_end
//   fn a_along_k() -> bool, fn b_along_k() -> bool   whether neighbours in memory are neighbours in k
//   fn store(row: u32, col: u32, sum: f32)   rows and columns may lie beyond the matrix

// One value more a row, so that threads that write a column do not meet in one bank.
var<workgroup> tile_a: array<f32, {{ bk }} * ({{ bm }} + 1)>;
var<workgroup> tile_b: array<f32, {{ bk }} * ({{ bn }} + 1)>;

// Computes and stores the tile at row0, col0, for k from k_begin to k_end. Call it once, by all threads.
fn tile(thread: u32, row0: u32, col0: u32, k_begin: u32, k_end: u32) {
    // Threads run along the direction that is contiguous in memory.
    let a_by_k = a_along_k();
    let a_row = select(thread % {{ bm }}u, thread / {{ bk }}u, a_by_k);
    let a_k = select(thread / {{ bm }}u, thread % {{ bk }}u, a_by_k);
    let a_row_step = select(0u, {{ workgroup_size }}u / {{ bk }}u, a_by_k);
    let a_k_step = select({{ workgroup_size }}u / {{ bm }}u, 0u, a_by_k);
    let b_by_k = b_along_k();
    let b_col = select(thread % {{ bn }}u, thread / {{ bk }}u, b_by_k);
    let b_k = select(thread / {{ bn }}u, thread % {{ bk }}u, b_by_k);
    let b_col_step = select(0u, {{ workgroup_size }}u / {{ bk }}u, b_by_k);
    let b_k_step = select({{ workgroup_size }}u / {{ bn }}u, 0u, b_by_k);
//!for i in {{ a_slots }}
    prepare_a({{ i }}u, row0 + a_row + {{ i }}u * a_row_step);
//!end
//!for j in {{ b_slots }}
    prepare_b({{ j }}u, col0 + b_col + {{ j }}u * b_col_step);
//!end
    let thread_row = thread / {{ threads_across }}u * {{ tm }}u;
    let thread_col = thread % {{ threads_across }}u;
//!for i in {{ tm }}
//!for j in {{ tn }}
    var sum_{{ i }}_{{ j }} = 0.0;
//!end
//!end
    for (var k0 = k_begin; k0 < k_end; k0 += {{ bk }}u) {
//!for i in {{ a_slots }}
        {
            let y = a_k + {{ i }}u * a_k_step;
            let k = min(k0 + y, k_end - 1u);
            at_a(k);
            tile_a[y * ({{ bm }}u + 1u) + a_row + {{ i }}u * a_row_step] = select(0.0, load_a({{ i }}u, k), k0 + y < k_end);
        }
//!end
//!for j in {{ b_slots }}
        {
            let y = b_k + {{ j }}u * b_k_step;
            let k = min(k0 + y, k_end - 1u);
            at_b(k);
            tile_b[y * ({{ bn }}u + 1u) + b_col + {{ j }}u * b_col_step] = select(0.0, load_b({{ j }}u, k), k0 + y < k_end);
        }
//!end
        workgroupBarrier();
        for (var y = 0u; y < {{ bk }}u; y++) {
//!for i in {{ tm }}
            let a_{{ i }} = tile_a[y * ({{ bm }}u + 1u) + thread_row + {{ i }}u];
//!end
//!for j in {{ tn }}
            let b_{{ j }} = tile_b[y * ({{ bn }}u + 1u) + thread_col + {{ j }}u * {{ threads_across }}u];
//!end
//!for i in {{ tm }}
//!for j in {{ tn }}
            sum_{{ i }}_{{ j }} = fma(a_{{ i }}, b_{{ j }}, sum_{{ i }}_{{ j }});
//!end
//!end
        }
        workgroupBarrier();
    }
    // A loop, because `store` written out for every value takes long to compile.
    var sums: array<f32, {{ tm }} * {{ tn }}>;
//!for i in {{ tm }}
//!for j in {{ tn }}
    sums[{{ i }} * {{ tn }} + {{ j }}] = sum_{{ i }}_{{ j }};
//!end
//!end
    for (var place = 0u; place < {{ tm }}u * {{ tn }}u; place++) {
        let row = row0 + thread_row + place / {{ tn }}u;
        store(row, col0 + thread_col + place % {{ tn }}u * {{ threads_across }}u, sums[place]);
    }
}
