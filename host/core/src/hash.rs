//! Hash maps for the look-ups of every run.

use std::collections::HashMap;

/// A [`HashMap`] with a hash function that takes a fraction of the time of SipHash, the default of the standard library.
/// Its seed is random, so keys that collide cannot be prepared. Unlike SipHash, it does not keep its seed from those who
/// see hashes, so they stay in the process.
pub type FastHashMap<K, V> = HashMap<K, V, foldhash::quality::RandomState>;
