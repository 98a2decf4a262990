//! Hash maps for the look-ups of every run.

use std::collections::HashMap;

/// A [`HashMap`] with a hash function that takes a fraction of the time of SipHash, the default of the standard library.
/// Its seed is random in each map, so clients cannot choose keys that collide.
pub type FastHashMap<K, V> = HashMap<K, V, foldhash::quality::RandomState>;
