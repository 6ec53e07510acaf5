//! The trace that a request belongs to, as the W3C's Trace Context has it.

use anyqueue::MessageData;
use anyqueue::header::TRACEPARENT;
use axum::http::HeaderMap;

/// The longest trace context: later versions may add fields.
const MAX_BYTES: usize = 256;

/// The trace context of a request. One that is malformed counts for none, and so do several: nobody could say
/// which is meant.
pub(crate) fn of(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(TRACEPARENT).iter();
    let (said, another) = (all.next()?, all.next());
    let text = said.to_str().ok()?.trim();
    (another.is_none() && is_valid(text)).then_some(text)
}

/// Gives a message the trace context of its push, unless it has one of its own.
pub(crate) fn given(message: MessageData, trace: Option<&str>) -> MessageData {
    match trace {
        Some(trace) if !message.headers().contains_key(TRACEPARENT) => {
            message.with_header(TRACEPARENT, trace)
        }
        _ => message,
    }
}

fn is_valid(text: &str) -> bool {
    let fields: Vec<&str> = text.splitn(5, '-').collect();
    let [version, trace, parent, flags, more @ ..] = fields.as_slice() else { return false };
    let has = |field: &str, digits: usize| {
        field.len() == digits && field.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_zero = |field: &str| field.bytes().all(|byte| byte == b'0');
    has(version, 2)
        && has(trace, 32)
        && has(parent, 16)
        && has(flags, 2)
        && !is_zero(trace)
        && !is_zero(parent)
        && *version != "ff"
        && (more.is_empty() || *version != "00")
        && text.len() <= MAX_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn only_a_whole_trace_context_is_one() {
        let later = format!("01{}-more", &TRACE[2..]);
        for text in [TRACE, later.as_str()] {
            assert!(is_valid(text), "{text}");
        }
        let long = format!("01{}-{}", &TRACE[2..], "x".repeat(MAX_BYTES));
        let others = [
            String::new(),
            "00".to_owned(),
            TRACE[..54].to_owned(),
            format!("{TRACE}-more"),
            TRACE.to_uppercase(),
            TRACE.replacen("00", "ff", 1),
            TRACE.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            TRACE.replace("b7ad6b7169203331", &"0".repeat(16)),
            TRACE.replace('b', "\u{e4}"),
            long,
        ];
        for text in others {
            assert!(!is_valid(&text), "{text:?}");
        }
    }

    #[test]
    fn of_two_trace_contexts_neither_counts() {
        let mut headers = HeaderMap::new();
        assert_eq!(of(&headers), None);
        headers.append(TRACEPARENT, TRACE.parse().unwrap());
        assert_eq!(of(&headers), Some(TRACE));
        headers.append(TRACEPARENT, TRACE.parse().unwrap());
        assert_eq!(of(&headers), None);
    }
}
