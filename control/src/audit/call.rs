//! A call and its outcome, within bounds.

use percent_encoding::percent_decode_str;

use crate::tokens::Secret;

/// The longest path that is kept, in bytes. A longer path is cut.
pub const MAX_PATH_BYTES: usize = 512;
/// The largest number of queues that are named for one call.
pub const MAX_QUEUES: usize = 8;
/// The largest number of details of one call.
pub const MAX_DETAILS: usize = 16;
/// The longest name of a queue or detail, and the longest value, in bytes. Longer ones are cut.
pub const MAX_DETAIL_BYTES: usize = 256;
/// The longest other text, in bytes.
const MAX_TEXT_BYTES: usize = 64;

/// A call that is about to be made, without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub(super) token: Option<String>,
    pub(super) from: Option<String>,
    pub(super) method: String,
    pub(super) path: String,
}

impl Call {
    /// A call of the operator of the service: the service asks for no tokens, or the call has the token that
    /// the service was started with. A token within the path is left out, even a percent-encoded one.
    #[must_use]
    pub fn new(method: &str, path: &str) -> Self {
        let hidden = path.split('/').map(without_secret).collect::<Vec<_>>().join("/");
        let (token, from) = (None, None);
        Self { token, from, method: cut(method, MAX_TEXT_BYTES), path: cut(&hidden, MAX_PATH_BYTES) }
    }

    /// Sets the name of the token.
    #[must_use]
    pub fn with_token(mut self, name: &str) -> Self {
        self.token = Some(cut(name, MAX_TEXT_BYTES));
        self
    }

    /// Sets the address of the client.
    #[must_use]
    pub fn with_from(mut self, address: &str) -> Self {
        self.from = Some(cut(address, MAX_TEXT_BYTES));
        self
    }
}

/// The outcome of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// The status of the response.
    pub status: u16,
    /// The queues that the call named.
    pub queues: Vec<String>,
    /// Names, ids and counts.
    pub details: Vec<(String, String)>,
}

impl Outcome {
    /// Makes an outcome with this status.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// Adds a queue, unless it is there already; beyond [`MAX_QUEUES`] it is left out.
    pub fn add_queue(&mut self, name: &str) {
        let name = cut(&without_secret(name), MAX_DETAIL_BYTES);
        if self.queues.len() < MAX_QUEUES && !self.queues.contains(&name) {
            self.queues.push(name);
        }
    }

    /// Adds a detail, or changes it; beyond [`MAX_DETAILS`] it is left out.
    pub fn add_detail(&mut self, name: &str, value: &str) {
        let (name, value) = (cut(name, MAX_DETAIL_BYTES), cut(&without_secret(value), MAX_DETAIL_BYTES));
        if let Some((_, there)) = self.details.iter_mut().find(|(there, _)| *there == name) {
            *there = value;
        } else if self.details.len() < MAX_DETAILS {
            self.details.push((name, value));
        }
    }
}

/// A client may have put a token where a name belongs, perhaps percent-encoded: whoever reads the text later
/// may decode it.
fn without_secret(text: &str) -> String {
    let decoded = percent_decode_str(text).decode_utf8_lossy();
    secret_in(text).or_else(|| secret_in(&decoded)).map_or_else(|| text.to_owned(), |secret| hidden(&secret))
}

fn hidden(secret: &Secret) -> String {
    format!("aq_{}_…", secret.name())
}

/// Finds a token with nothing next to it that could be part of it: a copied token may end with a space.
fn secret_in(text: &str) -> Option<Secret> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.split(|c| !is_part(c)).find_map(Secret::parse)
}

fn cut(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes.saturating_sub('…'.len_utf8()));
    format!("{}…", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_in_a_path_is_left_out() {
        let secret = Secret::random("ci");
        let call = Call::new("DELETE", &format!("/v1/tokens/{}", secret.text()));
        assert_eq!(call.path, "/v1/tokens/aq_ci_…");
        assert_eq!(Call::new("POST", "/v1/partitions/a_b/pause").path, "/v1/partitions/a_b/pause");
    }

    #[test]
    fn a_token_is_left_out_however_it_is_written() {
        let secret = Secret::random("ci").text();
        let encoded = secret.bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat();
        let partly = secret.replace('_', "%5F");
        let (copied, below) = (format!("{secret}%0A"), format!("x%2F{secret}"));
        // Decoded, this is a digit more than a token has.
        let longer = format!("{secret}%61");
        for written in [&encoded, &encoded.to_uppercase(), &partly, &copied, &below, &longer] {
            let call = Call::new("POST", &format!("/v1/partitions/{written}/pause"));
            assert_eq!(call.path, "/v1/partitions/aq_ci_…/pause", "{written}");
        }
        let mut outcome = Outcome::new(200);
        outcome.add_queue(&secret);
        outcome.add_detail("limit", &format!(" {secret}"));
        outcome.add_detail("filter error", &format!("token%3D{encoded}"));
        assert_eq!(outcome.queues, ["aq_ci_…"]);
        let details = ["limit", "filter error"].map(|name| (name.to_owned(), "aq_ci_…".to_owned()));
        assert_eq!(outcome.details, details);
        let encoded_name = "/v1/cron/new%20year%ff";
        assert_eq!(Call::new("PUT", encoded_name).path, encoded_name, "all else is kept as it was sent");
    }

    #[test]
    fn nothing_is_longer_than_its_bound() {
        let long = "ä".repeat(10_000);
        let call = Call::new(&long, &long).with_token(&long).with_from(&long);
        let mut outcome = Outcome::new(200);
        for place in 0..100 {
            outcome.add_queue(&format!("{place}{long}"));
            outcome.add_detail(&format!("{place}{long}"), &long);
        }
        assert!(call.path.len() <= MAX_PATH_BYTES && call.method.len() <= MAX_TEXT_BYTES);
        assert!(call.token.unwrap().len() <= MAX_TEXT_BYTES && call.from.unwrap().len() <= MAX_TEXT_BYTES);
        assert_eq!((outcome.queues.len(), outcome.details.len()), (MAX_QUEUES, MAX_DETAILS));
        let texts = outcome.details.iter().flat_map(|(name, value)| [name, value]).chain(&outcome.queues);
        assert!(texts.clone().all(|text| text.len() <= MAX_DETAIL_BYTES && text.ends_with('…')));
    }
}
