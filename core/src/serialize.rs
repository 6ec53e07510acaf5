//! Ids and partitions as the text that `Display` shows.

use std::str::FromStr as _;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::message::MessageId;
use crate::partition::{DEAD_LETTERS_MARK, PartitionId};

impl Serialize for MessageId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MessageId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_str(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl Serialize for PartitionId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PartitionId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (name, is_dead) =
            text.strip_suffix(DEAD_LETTERS_MARK).map_or((text.as_str(), false), |name| (name, true));
        let live = Self::new(name).map_err(D::Error::custom)?;
        Ok(if is_dead { live.dead_letters() } else { live })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Counts, MessageState, PushOutcome, QueueMessageStatus};

    fn comes_back<T: Serialize + for<'de> Deserialize<'de> + PartialEq + std::fmt::Debug>(
        value: &T,
        json: &str,
    ) {
        assert_eq!(serde_json::to_string(value).unwrap(), json);
        assert_eq!(&serde_json::from_str::<T>(json).unwrap(), value);
    }

    #[test]
    fn what_crosses_to_others_comes_back_as_it_was() {
        let (mail, id) = (PartitionId::new("mail").unwrap(), MessageId::from_bytes([7; 16]));
        comes_back(&mail, r#""mail""#);
        comes_back(&mail.dead_letters(), r#""mail (dead letters)""#);
        comes_back(&PushOutcome::Stored(id), r#"{"stored":"07070707-0707-0707-0707-070707070707"}"#);
        comes_back(&MessageState::Delayed, r#""delayed""#);
        comes_back(
            &Counts { ready: Some(1), ..Counts::default() },
            r#"{"ready":1,"delayed":null,"leased":null,"disabled":null,"dead":null}"#,
        );
        comes_back(
            &QueueMessageStatus::postponed(Duration::from_secs(2)),
            r#"{"postponed":{"delay":{"secs":2,"nanos":0},"headers":null}}"#,
        );
    }

    #[test]
    fn what_is_no_id_and_no_partition_is_refused() {
        assert!(serde_json::from_str::<MessageId>(r#""seven""#).is_err());
        for text in [r#""a b""#, r#""""#, r#"" (dead letters)""#, "7"] {
            assert!(serde_json::from_str::<PartitionId>(text).is_err(), "{text}");
        }
    }
}
