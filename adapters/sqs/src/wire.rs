//! The body of a message: the envelope in characters that every server keeps.

use anyqueue::{Decoded, Envelope, Error, ErrorKind, MessageData, Result};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// How every envelope begins: its mark, in the alphabet below.
const MARK: &str = "9kFR";
/// Separates the envelope from the seconds that are to pass before the message is due; of no alphabet.
const REST: char = '+';
/// The longest such end: seconds of some years.
pub(crate) const REST_BYTES: u64 = 11;

/// A body, read.
pub(crate) struct Body {
    pub(crate) decoded: Decoded,
    /// How long after it was sent the message is due, in whole seconds.
    pub(crate) due_after_secs: u64,
}

/// The body for an envelope. `due_after_secs` says what the server's own delay cannot.
pub(crate) fn encode(envelope: &Envelope, due_after_secs: u64) -> Result<String> {
    let mut body = URL_SAFE_NO_PAD.encode(envelope.encode()?);
    if due_after_secs > 0 {
        body.push(REST);
        body.push_str(&due_after_secs.to_string());
    }
    Ok(body)
}

/// An upper bound of the body's bytes, whatever becomes of the message.
pub(crate) fn max_len(message: &MessageData) -> u64 {
    encoded_len(Envelope::max_encoded_len(message)) + REST_BYTES
}

/// Characters for so many bytes.
pub(crate) const fn encoded_len(bytes: u64) -> u64 {
    (bytes * 4).div_ceil(3)
}

/// Reads a body. What does not begin like an envelope was put there by something else.
pub(crate) fn decode(body: &str) -> Result<Body> {
    let foreign = || Body { decoded: Decoded::Foreign(body.as_bytes().to_vec().into()), due_after_secs: 0 };
    if !body.starts_with(MARK) {
        return Ok(foreign());
    }
    let (text, rest) = body.split_once(REST).unwrap_or((body, "0"));
    let (Ok(bytes), Ok(due_after_secs)) = (URL_SAFE_NO_PAD.decode(text), rest.parse()) else {
        return Ok(foreign());
    };
    match Envelope::decode(&bytes.into())? {
        Decoded::Foreign(_) => Ok(foreign()),
        decoded @ Decoded::Envelope(_) => Ok(Body { decoded, due_after_secs }),
    }
}

/// An answer that no server of this kind gives.
pub(crate) fn strange(what: &str) -> Error {
    Error::new(ErrorKind::Incompatible, format!("the server's answer lacks {what}"))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn envelope(payload: &[u8]) -> Envelope {
        Envelope::new(MessageData::new(payload).with_header("a", "ü"), SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn every_byte_comes_back_in_plain_characters() {
        let every: Vec<u8> = (0..=255).collect();
        for due_after_secs in [0, 1, 315_360_000] {
            let envelope = envelope(&every);
            let body = encode(&envelope, due_after_secs).unwrap();
            assert!(body.bytes().all(|byte| byte.is_ascii_graphic()), "{body}");
            assert!(body.len() as u64 <= max_len(&envelope.message));
            let read = decode(&body).unwrap();
            assert_eq!(read.decoded, Decoded::Envelope(envelope));
            assert_eq!(read.due_after_secs, due_after_secs);
        }
    }

    #[test]
    fn lengths_are_exact() {
        for bytes in 0..20 {
            let envelope = envelope(&vec![7; bytes]);
            assert_eq!(encode(&envelope, 0).unwrap().len() as u64, encoded_len(envelope.encoded_len()));
        }
    }

    #[test]
    fn what_is_no_envelope_is_delivered_as_it_is() {
        for text in ["", "{}", "9kFR", "9kFR!", "9kFRAaA+x", "hello 9kFR"] {
            let body = decode(text).unwrap();
            assert_eq!(body.decoded, Decoded::Foreign(text.as_bytes().to_vec().into()), "{text}");
        }
        let newer = URL_SAFE_NO_PAD.encode(b"\xF6AQ\x02\xA0");
        assert_eq!(decode(&newer).err().map(|error| error.kind()), Some(ErrorKind::Incompatible));
    }

    proptest::proptest! {
        /// A body is what anybody wrote into the queue.
        #[test]
        fn any_body_is_read_or_refused(text in proptest::prop_oneof![".*", "9kFR[A-Za-z0-9_-]{0,80}(\\+[0-9]{0,25})?"]) {
            match decode(&text) {
                Ok(Body { decoded: Decoded::Foreign(payload), .. }) => proptest::prop_assert_eq!(payload, text.as_bytes()),
                Ok(_) => {}
                Err(error) => {
                    proptest::prop_assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Incompatible));
                }
            }
        }
    }
}
