// Parameters of a launch, bound after its tensors. Word 0 is the first workgroup of this dispatch: a launch of many
// workgroups is split into several dispatches.
@group(0) @binding({{ params_binding }}) var<storage, read> params: array<u32>;

// Word `i` that the host gave to the launch.
fn param(i: u32) -> u32 {
    return params[i + 1u];
}

// Index of a workgroup in its whole launch.
fn group_index(workgroup_id: vec3<u32>) -> u32 {
    return params[0] + workgroup_id.x;
}
