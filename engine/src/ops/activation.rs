//! Activations that operations apply to what they load or store.

/// What is done to a value: nothing, or `max(value, 0)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Activation {
    #[default]
    Identity,
    Relu,
}
