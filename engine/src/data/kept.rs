//! Targets that take long to make, kept while there is room.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Result;

/// What was made, by what it was made for; beyond a number of them, each is made again every time.
#[derive(Debug)]
pub(super) struct Kept<K, V: ?Sized> {
    most: usize,
    made: Mutex<BTreeMap<K, Arc<V>>>,
}

impl<K: Ord, V: ?Sized> Kept<K, V> {
    pub fn new(most: usize) -> Self {
        Self { most, made: Mutex::default() }
    }

    /// Several threads may make the same at once: they all make the same.
    pub fn get(&self, key: K, make: impl FnOnce() -> Result<Arc<V>>) -> Result<Arc<V>> {
        let lock = || self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = lock().get(&key) {
            return Ok(Arc::clone(kept));
        }
        let made = make()?;
        let mut kept = lock();
        if kept.len() < self.most {
            kept.insert(key, Arc::clone(&made));
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_made_once_and_the_rest_each_time() {
        let kept: Kept<usize, str> = Kept::new(2);
        let mut made = Vec::new();
        for key in [5, 3, 5, 8, 3, 8] {
            let text = kept.get(key, || {
                made.push(key);
                Ok(key.to_string().into())
            });
            assert_eq!(&*text.unwrap(), key.to_string());
        }
        assert_eq!(made, [5, 3, 8, 8]);
    }
}
