// A tile of {{ bm }} x {{ bn }} values of C = A B by a workgroup of {{ workgroup_size }} threads on matrix units (tensor cores). A and B are
// rounded to f16 into workgroup memory, {{ bk }} of k at a time; each subgroup multiplies {{ tm }} x {{ tn }} of the tile in squares of
// {{ side }}. Sums in f32, in the order of the matrix unit inside a square and with k ascending between them.
//
// The file that includes it defines what `tile_staged` lists. For any subgroup size: with fewer subgroups than blocks the
// workgroup goes over k several times, and subgroups beyond the blocks only help to load.

const SIDE: u32 = {{ side }}u;
const SQUARE: u32 = SIDE * SIDE;
const BLOCKS_N: u32 = {{ bn }}u / {{ tn }}u;
const BLOCKS: u32 = {{ bm }}u / {{ tm }}u * BLOCKS_N;
// Of a row in workgroup memory: a multiple of 16 bytes, as matrix units ask for, and no power of two, so that the rows of
// a square lie in different banks.
const ROW: u32 = {{ bk }}u + 8u;

alias SquareA = coop_mat{{ side }}x{{ side }}<f16, A>;
alias SquareB = coop_mat{{ side }}x{{ side }}<f16, B>;
alias SquareC = coop_mat{{ side }}x{{ side }}<f32, C>;

// Both with k along a row.
var<workgroup> tile_a: array<f16, {{ bm }}u * ROW>;
var<workgroup> tile_b: array<f16, {{ bn }}u * ROW>;
// One square of sums for each block at work, and one for all subgroups that have none.
var<workgroup> tile_c: array<f32, (BLOCKS + 1u) * SQUARE>;
// Last, so that the arrays begin at multiples of 16 bytes.
var<workgroup> tile_subgroups: atomic<u32>;

// Computes and stores the tile at row0, col0, for k from k_begin to k_end. Call it once, by all threads.
fn tile(thread: u32, row0: u32, col0: u32, k_begin: u32, k_end: u32) {
    // The number of this subgroup, and how many there are: first come, first numbered.
    if thread == 0u {
        atomicStore(&tile_subgroups, 0u);
    }
    workgroupBarrier();
    var number = 0u;
    if subgroupExclusiveAdd(1u) == 0u {
        number = atomicAdd(&tile_subgroups, 1u);
    }
    let subgroup = subgroupBroadcastFirst(number);
    workgroupBarrier();
    let subgroups = atomicLoad(&tile_subgroups);

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

    for (var first = 0u; first < BLOCKS; first += subgroups) {
        // A subgroup without a block computes the first one and drops it: all subgroups must come by here.
        let mine = first + subgroup < BLOCKS;
        let block = select(0u, first + subgroup, mine);
        let block_row = block / BLOCKS_N * {{ tm }}u;
        let block_col = block % BLOCKS_N * {{ tn }}u;
        let sums = select(BLOCKS, subgroup, mine) * SQUARE;
        for (var place = thread; place < (BLOCKS + 1u) * SQUARE; place += {{ workgroup_size }}u) {
            tile_c[place] = 0.0;
        }
        workgroupBarrier();
//!for i in {{ squares_m }}
//!for j in {{ squares_n }}
        var sum_{{ i }}_{{ j }} = coopLoadT<SquareC>(&tile_c[sums], SIDE);
//!end
//!end
        for (var k0 = k_begin; k0 < k_end; k0 += {{ bk }}u) {
//!for i in {{ a_slots }}
            {
                let y = a_k + {{ i }}u * a_k_step;
                let k = min(k0 + y, k_end - 1u);
                at_a(k);
                tile_a[(a_row + {{ i }}u * a_row_step) * ROW + y] = f16(select(0.0, load_a({{ i }}u, k), k0 + y < k_end));
            }
//!end
//!for j in {{ b_slots }}
            {
                let y = b_k + {{ j }}u * b_k_step;
                let k = min(k0 + y, k_end - 1u);
                at_b(k);
                tile_b[(b_col + {{ j }}u * b_col_step) * ROW + y] = f16(select(0.0, load_b({{ j }}u, k), k0 + y < k_end));
            }
//!end
            workgroupBarrier();
            for (var y = 0u; y < {{ bk }}u; y += SIDE) {
//!for i in {{ squares_m }}
                let a_{{ i }} = coopLoadT<SquareA>(&tile_a[(block_row + {{ i }}u * SIDE) * ROW + y], ROW);
//!end
//!for j in {{ squares_n }}
                let b_{{ j }} = coopLoad<SquareB>(&tile_b[(block_col + {{ j }}u * SIDE) * ROW + y], ROW);
//!end
//!for i in {{ squares_m }}
//!for j in {{ squares_n }}
                sum_{{ i }}_{{ j }} = coopMultiplyAdd(a_{{ i }}, b_{{ j }}, sum_{{ i }}_{{ j }});
//!end
//!end
            }
            workgroupBarrier();
        }
//!for i in {{ squares_m }}
//!for j in {{ squares_n }}
        coopStoreT(sum_{{ i }}_{{ j }}, &tile_c[sums], SIDE);
        workgroupBarrier();
        store_squares(thread, row0 + {{ i }}u * SIDE, col0 + {{ j }}u * SIDE, first, subgroups);
        workgroupBarrier();
//!end
//!end
    }
}

// Stores the square that each of the blocks first, first + 1, ... has put to `tile_c`; row0, col0 is its place in block 0.
fn store_squares(thread: u32, row0: u32, col0: u32, first: u32, subgroups: u32) {
    let count = min(subgroups, BLOCKS - first) * SQUARE;
    for (var place = thread; place < count; place += {{ workgroup_size }}u) {
        let block = first + place / SQUARE;
        let row = row0 + block / BLOCKS_N * {{ tm }}u + place % SQUARE / SIDE;
        store(row, col0 + block % BLOCKS_N * {{ tn }}u + place % SIDE, tile_c[place]);
    }
}
