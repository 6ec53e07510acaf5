//! Certificates that stand for tokens: whoever shows one to a service is whoever shows the token.
//!
//! Each is one entry of the store, `certificate/<fingerprint>`, with the name and the digest of its token. The token's entry knows nothing of it, and is what
//! says whether it counts: one that is deleted, or created anew under its name, has no certificates.

use std::time::SystemTime;

use anyqueue::control::{Applied, Change, Entry, Key, MAX_CONTROL_CHANGES};
use anyqueue::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::name::{TOKENS, key_of, name_of};
use super::record::Record;
use super::{Fingerprint, TokenInfo, Tokens};
use crate::entry::{FORMAT, decode, encode, unchanged};

/// What the keys of all bindings begin with.
const CERTIFICATES: &str = "certificate/";
/// The most certificates in one store.
pub const MAX_CERTIFICATES: usize = 1_000;
/// Several who bind some at once may make a few more.
const MAX_LISTED: usize = 2 * MAX_CERTIFICATES;

/// What the entry of a certificate holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Binding {
    format: u32,
    token: String,
    /// The digest of the token, which tells it from a later one of its name.
    sha256: String,
}

/// What came of binding a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bound {
    /// It stands for the token, also if it did before.
    Done,
    /// There is no such token.
    NoToken,
    /// The token's time is over, so that it would stand for nobody: create another one, of this name once that is deleted, and bind it to that.
    Expired,
    /// It stands for another token, of this name: unbind it first.
    Taken(String),
}

impl Tokens {
    /// Has a certificate stand for a token, besides those that do already: for as long as the token counts, and until it is [unbound](Self::unbind).
    ///
    /// # Errors
    /// [`Full`](ErrorKind::Full) if there are [`MAX_CERTIFICATES`] that stand for tokens which count, [`Unavailable`](ErrorKind::Unavailable) if somebody else binds it at the same time, or the
    /// server's.
    pub async fn bind(&self, name: &str, certificate: &Fingerprint) -> Result<Bound> {
        let key = binding_key(certificate)?;
        let found = self.store.get(&key_of(name)?).await?;
        let Some(token) = found.value else { return Ok(Bound::NoToken) };
        let token = Record::of(&token)?.info(name);
        if token.is_expired(found.now) {
            return Ok(Bound::Expired);
        }
        let there = self.store.get(&key).await?.value;
        // One that cannot be read stands for nobody.
        match self.token_of(there.as_ref()).await {
            Ok(Some(bound)) if bound.name != name => return Ok(Bound::Taken(bound.name)),
            Ok(Some(_)) => return Ok(Bound::Done),
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            Err(error) => return Err(error),
        }
        if there.is_none() && !self.has_room().await? {
            let text = format!("{MAX_CERTIFICATES} certificates stand for tokens: unbind one first");
            return Err(Error::new(ErrorKind::Full, text));
        }
        let sha256 = token.fingerprint().to_owned();
        let binding = Binding { format: FORMAT, token: token.name, sha256 };
        let change = Change::put(key, unchanged(there.as_ref()), encode(&binding)?);
        match self.store.apply(change).await?.value {
            Applied::Done => Ok(Bound::Done),
            Applied::Conflict(_) => {
                let text = "somebody else binds this certificate: look which token it is for, and try again";
                Err(Error::new(ErrorKind::Unavailable, text))
            }
        }
    }

    /// Has a certificate stand for nobody: services refuse it within a second. Returns whether it stood for anybody.
    ///
    /// # Errors
    /// The server's.
    pub async fn unbind(&self, certificate: &Fingerprint) -> Result<bool> {
        self.delete_entry(&binding_key(certificate)?).await
    }

    /// The token that a certificate stands for, if that counts: asks the store twice. Whether the certificate is shown by whoever holds its key, and what its
    /// authority says of it, is not looked at.
    ///
    /// # Errors
    /// If an entry cannot be read, or the server's.
    pub async fn of_certificate(&self, certificate: &Fingerprint) -> Result<Option<TokenInfo>> {
        let found = self.store.get(&binding_key(certificate)?).await?;
        self.token_of(found.value.as_ref()).await
    }

    /// The certificates that stand for tokens, each with the name of its token, in the order of these names. What cannot be read is left out.
    ///
    /// # Errors
    /// The server's.
    pub async fn certificates(&self) -> Result<Vec<(String, Fingerprint)>> {
        let tokens = self.list().await?.tokens;
        let counts = |binding: &Binding| {
            tokens.iter().any(|token| token.name == binding.token && token.fingerprint() == binding.sha256)
        };
        let mut all: Vec<_> =
            self.bindings().await?.iter().filter_map(read).filter(|(one, _)| counts(one)).collect();
        all.sort_by(|one, other| (&one.0.token, one.1).cmp(&(&other.0.token, other.1)));
        Ok(all.into_iter().map(|(binding, certificate)| (binding.token, certificate)).collect())
    }

    /// Deletes the bindings to a token that is deleted: they stand for nobody, but take up room.
    pub(super) async fn unbind_all(&self, name: &str) -> Result<()> {
        for entry in self.bindings().await? {
            if read(&entry).is_some_and(|(binding, _)| binding.token == name) {
                self.store.apply(Change::delete(entry.key.clone(), unchanged(Some(&entry)))).await?;
            }
        }
        Ok(())
    }

    /// Whether one more can be bound. If not, those that stand for nobody are deleted first: their tokens have expired, are gone or others of their names. What cannot be
    /// read is left: a newer release may know better.
    async fn has_room(&self) -> Result<bool> {
        let bindings = self.bindings().await?;
        if bindings.len() < MAX_CERTIFICATES {
            return Ok(true);
        }
        // Listed later than the bindings, so that the token of each is among them.
        let tokens = self.store.list_all(TOKENS, super::MAX_LISTED).await?;
        let dead = bindings.iter().filter(|entry| {
            read(entry).is_some_and(|(binding, _)| stands_for_nobody(&binding, &tokens.value, tokens.now))
        });
        let changes: Vec<_> =
            dead.map(|entry| Change::delete(entry.key.clone(), unchanged(Some(entry)))).collect();
        let mut left = bindings.len();
        for some in changes.chunks(MAX_CONTROL_CHANGES) {
            let applied = self.store.apply_all(some.to_vec()).await?.value;
            // One that is not there any more, somebody else has deleted.
            left -=
                applied.iter().filter(|one| matches!(one, Applied::Done | Applied::Conflict(None))).count();
        }
        Ok(left < MAX_CERTIFICATES)
    }

    async fn bindings(&self) -> Result<Vec<Entry>> {
        Ok(self.store.list_all(CERTIFICATES, MAX_LISTED).await?.value)
    }

    /// The token that this entry binds a certificate to, as it is now.
    async fn token_of(&self, binding: Option<&Entry>) -> Result<Option<TokenInfo>> {
        let Some(entry) = binding else { return Ok(None) };
        let binding: Binding = decode(entry)?;
        let found = self.store.get(&key_of(&binding.token)?).await?;
        let Some(token) = found.value else { return Ok(None) };
        let info = Record::of(&token)?.info(&binding.token);
        Ok((info.fingerprint() == binding.sha256 && !info.is_expired(found.now)).then_some(info))
    }
}

/// Whether the token of a binding does not count, of all that there are now. In doubt, as it cannot be read, it may.
fn stands_for_nobody(binding: &Binding, tokens: &[Entry], now: SystemTime) -> bool {
    let token = tokens.iter().find(|entry| name_of(&entry.key) == binding.token);
    let counts = |token: &Entry| {
        Record::of(token).map_or(true, |record| {
            let info = record.info(&binding.token);
            info.fingerprint() == binding.sha256 && !info.is_expired(now)
        })
    };
    !token.is_some_and(counts)
}

fn read(entry: &Entry) -> Option<(Binding, Fingerprint)> {
    let certificate = entry.key.as_str().strip_prefix(CERTIFICATES)?.parse().ok()?;
    Some((decode(entry).ok()?, certificate))
}

fn binding_key(certificate: &Fingerprint) -> Result<Key> {
    Key::new(format!("{CERTIFICATES}{certificate}"))
}
