//! Streams that a component opens itself.

use futures::channel::mpsc;

use super::{StreamReader, StreamWriter};

/// Items that the host takes before it is read, as the real one does.
const TAKEN_ITEMS: usize = 16;

pub(crate) fn new<T: 'static>() -> (StreamWriter<T>, StreamReader<T>) {
    let (sender, receiver) = mpsc::channel(TAKEN_ITEMS);
    (StreamWriter::Test(sender), StreamReader::new(receiver))
}
