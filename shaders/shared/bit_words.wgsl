// Words of 32 bits from one bit a value, where threads read values that are {{ workgroup_size }} apart.
var<workgroup> bit_rows: array<u32, {{ workgroup_size }}>;

// `own` holds a bit for each of 32 values of this thread: bit k is that of value k * {{ workgroup_size }} + thread of the
// workgroup. The result has the bits of the values 32 * thread, 32 * thread + 1, ... Every thread of the workgroup calls
// it once, in uniform control flow.
fn bit_word(thread: u32, own: u32) -> u32 {
    bit_rows[thread] = own;
    workgroupBarrier();
    const WORDS: u32 = {{ workgroup_size }}u / 32u;
    let row = thread / WORDS;
    let first = thread % WORDS * 32u;
    var word = 0u;
    for (var i = 0u; i < 32u; i++) {
        word |= ((bit_rows[first + i] >> row) & 1u) << i;
    }
    return word;
}
