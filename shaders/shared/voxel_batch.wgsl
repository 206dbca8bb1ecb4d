// Batch member of a point, from the array `offsets`: member b owns the points offsets[b] .. offsets[b + 1].

// The last of `members` members that does not begin after point `i`; members may be empty.
fn batch_of(i: u32, members: u32) -> u32 {
    var low = 0u;
    var high = members;
    while high - low > 1u {
        let middle = (low + high) / 2u;
        if offsets[middle] <= i {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}
