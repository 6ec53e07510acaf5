//! The body of a message: core's envelope as text, with characters that every server accepts.

use anyqueue::adapter::{Decoded, Envelope};
use anyqueue::{Bytes, Error, ErrorKind, MessageData, Result};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The beginning of every envelope: its mark, encoded.
const MARK: &str = "9kFR";
/// Separates the envelope from the seconds until the message is due, and those from the envelope that is
/// stored next to an unreadable one. It is not in the alphabet of the encoding.
const REST: char = '+';
/// The longest suffix: seconds of several years.
pub(crate) const REST_BYTES: u64 = 11;

/// A decoded body.
pub(crate) struct Body<'b> {
    pub(crate) content: Content<'b>,
    /// How many seconds after it was sent the message is due.
    pub(crate) due_after_secs: u64,
    /// The envelope that a copy stores next to an unreadable one.
    pub(crate) kept: Option<Envelope>,
}

/// The content of a body.
pub(crate) enum Content<'b> {
    Readable(Decoded),
    Unreadable(Unreadable<'b>),
}

/// An envelope that cannot be read.
pub(crate) struct Unreadable<'b> {
    /// The envelope as it is in the body.
    pub(crate) text: &'b str,
    /// The decoded envelope, or the text itself if it is not valid text of the encoding.
    pub(crate) bytes: Bytes,
    pub(crate) why: Error,
}

/// Encodes an envelope as a body. `due_after_secs` is a delay that exceeds the server's own limit.
pub(crate) fn encode(envelope: &Envelope, due_after_secs: u64) -> Result<String> {
    let mut body = URL_SAFE_NO_PAD.encode(envelope.encode()?);
    if due_after_secs > 0 {
        body.push(REST);
        body.push_str(&due_after_secs.to_string());
    }
    Ok(body)
}

/// Encodes the body for a copy of an unreadable message: the stored form stays unchanged, and an envelope
/// next to it has the rest.
pub(crate) fn encode_unreadable(text: &str, mut kept: Envelope, due_after_secs: u64) -> Result<String> {
    let empty = MessageData::with_id(kept.message.id(), Bytes::new());
    let (headers, options) = (kept.message.headers().clone(), kept.message.options().clone());
    kept.message = empty.with_headers(headers).with_options(options);
    Ok(format!("{text}{REST}{due_after_secs}{REST}{}", encode(&kept, 0)?))
}

/// Returns an upper bound of the body's size in bytes, whatever happens to the message.
pub(crate) fn max_len(message: &MessageData) -> u64 {
    encoded_len(Envelope::max_encoded_len(message)) + REST_BYTES
}

/// Returns the number of characters for this many bytes.
pub(crate) const fn encoded_len(bytes: u64) -> u64 {
    (bytes * 4).div_ceil(3)
}

/// Decodes a body. A body that does not begin like an envelope was sent by another program.
pub(crate) fn decode(body: &str) -> Body<'_> {
    if !body.starts_with(MARK) {
        return foreign(body);
    }
    let (text, due_after_secs, kept) = parts(body);
    let (bytes, is_text) = match URL_SAFE_NO_PAD.decode(text) {
        Ok(bytes) => (Bytes::from(bytes), true),
        Err(_) => (Bytes::copy_from_slice(text.as_bytes()), false),
    };
    let content = match Envelope::decode(&bytes) {
        Ok(Decoded::Foreign(_)) if is_text && kept.is_none() => return foreign(body),
        Ok(decoded @ Decoded::Envelope(_)) => Content::Readable(decoded),
        Ok(Decoded::Foreign(_)) => Content::Unreadable(Unreadable { text, bytes, why: damaged() }),
        Err(why) => Content::Unreadable(Unreadable { text, bytes, why }),
    };
    Body { content, due_after_secs, kept }
}

fn foreign(body: &str) -> Body<'_> {
    let payload = Bytes::copy_from_slice(body.as_bytes());
    Body { content: Content::Readable(Decoded::Foreign(payload)), due_after_secs: 0, kept: None }
}

/// Splits a body into the envelope, the seconds, and the envelope next to it. Without a valid suffix,
/// everything is the envelope.
fn parts(body: &str) -> (&str, u64, Option<Envelope>) {
    let Some((front, last)) = body.rsplit_once(REST) else { return (body, 0, None) };
    if let Ok(due_after_secs) = last.parse() {
        return (front, due_after_secs, None);
    }
    let kept = URL_SAFE_NO_PAD.decode(last).ok().and_then(|bytes| Envelope::decode(&bytes.into()).ok());
    match (kept, front.rsplit_once(REST).map(|(text, secs)| (text, secs.parse()))) {
        (Some(Decoded::Envelope(kept)), Some((text, Ok(due_after_secs)))) => {
            (text, due_after_secs, Some(kept))
        }
        _ => (body, 0, None),
    }
}

fn damaged() -> Error {
    Error::new(ErrorKind::Corrupt, "a stored message cannot be parsed")
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn envelope(payload: &[u8]) -> Envelope {
        Envelope::new(MessageData::new(payload).with_header("a", "ü"), SystemTime::UNIX_EPOCH)
    }

    fn readable<'r>(body: &'r Body<'_>) -> Option<&'r Decoded> {
        match &body.content {
            Content::Readable(decoded) => Some(decoded),
            Content::Unreadable(_) => None,
        }
    }

    fn why(body: &Body<'_>) -> Option<ErrorKind> {
        match &body.content {
            Content::Readable(_) => None,
            Content::Unreadable(unreadable) => Some(unreadable.why.kind()),
        }
    }

    #[test]
    fn every_byte_comes_back_in_plain_characters() {
        let every: Vec<u8> = (0..=255).collect();
        for due_after_secs in [0, 1, 315_360_000] {
            let envelope = envelope(&every);
            let body = encode(&envelope, due_after_secs).unwrap();
            assert!(body.bytes().all(|byte| byte.is_ascii_graphic()), "{body}");
            assert!(body.len() as u64 <= max_len(&envelope.message));
            let read = decode(&body);
            assert_eq!(readable(&read), Some(&Decoded::Envelope(envelope)));
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
        for text in ["", "{}", "9kFR", "hello 9kFR"] {
            let body = decode(text);
            assert_eq!(readable(&body), Some(&Decoded::Foreign(text.as_bytes().to_vec().into())), "{text}");
        }
        let newer = URL_SAFE_NO_PAD.encode(b"\xF6AQ\x02\xA0");
        assert_eq!(why(&decode(&newer)), Some(ErrorKind::Incompatible));
        let right = encode(&envelope(b"payload"), 0).unwrap();
        let cut = right.get(..right.len() - 2).unwrap();
        for damaged in ["9kFR!", "9kFRAaA+x", "9kFRAaA+1+x", cut, &format!("{cut}+7")] {
            assert_eq!(why(&decode(damaged)), Some(ErrorKind::Corrupt), "{damaged}");
        }
    }

    #[test]
    fn a_copy_of_what_cannot_be_read_keeps_it_as_it_is_until_somebody_can() {
        let (original, mut kept) = (envelope(b"payload"), envelope(b"stored"));
        let right = encode(&original, 0).unwrap();
        kept.message = kept.message.with_header("new", "1").with_group("g");
        kept.prior_deliveries = 3;
        for text in ["9kFR!", "9kFRAaA+x", right.get(..right.len() - 2).unwrap()] {
            let body = encode_unreadable(text, kept.clone(), 900).unwrap();
            let read = decode(&body);
            let Content::Unreadable(unreadable) = &read.content else { panic!("{body}") };
            assert_eq!((unreadable.text, read.due_after_secs), (text, 900));
            let beside = read.kept.unwrap();
            assert_eq!((beside.message.id(), beside.prior_deliveries), (kept.message.id(), 3));
            assert_eq!(beside.message.headers(), kept.message.headers());
            assert_eq!(beside.message.options().group.as_deref(), Some("g"));
            assert!(beside.message.payload().is_empty());
        }
        let body = encode_unreadable(&right, kept, 0).unwrap();
        assert_eq!(readable(&decode(&body)), Some(&Decoded::Envelope(original)));
    }

    proptest::proptest! {
        /// A body can be anything that was sent to the queue.
        #[test]
        fn any_body_is_read_or_refused(text in proptest::prop_oneof![".*", "9kFR[A-Za-z0-9_-]{0,80}(\\+[0-9]{0,25})?"]) {
            match decode(&text).content {
                Content::Readable(Decoded::Foreign(payload)) => proptest::prop_assert_eq!(payload, text.as_bytes()),
                Content::Readable(Decoded::Envelope(_)) => {}
                Content::Unreadable(Unreadable { why, .. }) => {
                    proptest::prop_assert!(matches!(why.kind(), ErrorKind::Corrupt | ErrorKind::Incompatible));
                }
            }
        }
    }
}
