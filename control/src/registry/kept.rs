//! What a service keeps for a worker that it reports on: such a worker names its tasks, and nothing else.

use std::fmt;

use anyqueue::MessageId;
use serde::{Deserialize, Serialize};

/// The largest number of bytes that are kept for a worker. The tasks that its entry shows have that much less
/// room.
pub(crate) const MAX_KEPT_BYTES: usize = 96 << 10;

/// Texts that are kept for a worker, each under the id of a message, in the order in which they came. They
/// are shown only to whoever has the worker's secret.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept(Vec<(String, String)>);

impl Kept {
    /// The number of texts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text of this message.
    #[must_use]
    pub fn get(&self, id: MessageId) -> Option<&str> {
        let id = id.to_string();
        self.0.iter().find(|(of, _)| *of == id).map(|(_, text)| text.as_str())
    }

    /// All texts, in the order in which they came.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (MessageId, &str)> {
        self.0.iter().filter_map(|(id, text)| Some((id.parse().ok()?, text.as_str())))
    }

    /// Keeps a text, in place of any other of the same message.
    pub fn put(&mut self, id: MessageId, text: impl Into<String>) {
        let id = id.to_string();
        self.0.retain(|(of, _)| *of != id);
        self.0.push((id, text.into()));
    }

    /// Stops keeping this text of this message. Another text that has replaced it stays.
    pub fn remove(&mut self, id: MessageId, text: &str) {
        let id = id.to_string();
        self.0.retain(|(of, kept)| *of != id || kept != text);
    }

    /// An upper bound on the number of bytes that the texts take as JSON.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|(id, text)| id.len() + text.len() + 8).sum()
    }
}

/// Shows only the number of texts: they can be secret.
impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kept({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_kept_for_each_message_and_the_last_one_counts() {
        let ids = [MessageId::new(), MessageId::new()];
        let mut kept = Kept::default();
        kept.put(ids[0], "a");
        kept.put(ids[1], "b");
        kept.put(ids[0], "c");
        assert_eq!(kept.iter().collect::<Vec<_>>(), [(ids[1], "b"), (ids[0], "c")]);
        assert_eq!((kept.get(ids[0]), kept.len()), (Some("c"), 2));
        kept.remove(ids[0], "a");
        assert_eq!(kept.get(ids[0]), Some("c"), "what has taken its place stays");
        kept.remove(ids[0], "c");
        assert_eq!((kept.get(ids[0]), format!("{kept:?}").as_str()), (None, "Kept(1)"));
    }
}
