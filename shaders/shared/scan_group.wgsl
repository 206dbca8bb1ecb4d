// Exclusive scan of one u32 per thread over the {{ workgroup_size }} threads of a workgroup (a power of two).
var<workgroup> scan_memory: array<u32, {{ workgroup_size }}>;

struct GroupScan {
    // Sum of the values of the threads before this one.
    before: u32,
    // Sum over the workgroup.
    total: u32,
}

// Every thread of the workgroup calls it, in uniform control flow.
fn scan_group(thread: u32, value: u32) -> GroupScan {
    var sum = value;
    scan_memory[thread] = sum;
    for (var reach = 1u; reach < {{ workgroup_size }}u; reach <<= 1u) {
        workgroupBarrier();
        if thread >= reach {
            sum += scan_memory[thread - reach];
        }
        workgroupBarrier();
        scan_memory[thread] = sum;
    }
    workgroupBarrier();
    let total = scan_memory[{{ workgroup_size }}u - 1u];
    // The memory may be used again at once.
    workgroupBarrier();
    return GroupScan(sum - value, total);
}
