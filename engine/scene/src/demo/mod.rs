//! The demo world: procedural streets and a spinning LiDAR that is ray-cast through them.
