//! (room of the engine)
