//! Certificates that stand for tokens: a client that shows such a certificate to a service is treated as if
//! it had shown the token.
//!
//! Each certificate is one entry of the store, `certificate/<fingerprint>`, with the name and the digest of
//! its token. The token's entry does not know its certificates, but it decides whether they are valid: a
//! token that was deleted, or created again under the same name, has no certificates.

use std::time::SystemTime;

use anyqueue::control::{Applied, Change, Entry, Key, MAX_CONTROL_CHANGES};
use anyqueue::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::name::{TOKENS, key_of, name_of};
use super::record::Record;
use super::{Fingerprint, TokenInfo, Tokens};
use crate::entry::{FORMAT, decode, encode, unchanged};

/// The prefix of the keys of all bindings.
const CERTIFICATES: &str = "certificate/";
/// The largest number of certificates in one store.
pub const MAX_CERTIFICATES: usize = 1_000;
/// Clients that bind certificates at the same time may exceed the limit a little.
const MAX_LISTED: usize = 2 * MAX_CERTIFICATES;

/// What the entry of a certificate holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Binding {
    format: u32,
    token: String,
    /// The digest of the token, which distinguishes it from a later token of the same name.
    sha256: String,
}

/// The result of binding a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bound {
    /// The certificate stands for the token, as it may have done before.
    Done,
    /// There is no such token.
    NoToken,
    /// The token has expired, so the certificate would stand for nobody. Delete the token, create another one
    /// of this name, and bind the certificate to that.
    Expired,
    /// The certificate stands for the token of this other name: unbind it first.
    Taken(String),
}

impl Tokens {
    /// Makes a certificate stand for a token, in addition to any other certificates: for as long as the token
    /// is valid, and until the certificate is [unbound](Self::unbind).
    ///
    /// # Errors
    /// [`Full`](ErrorKind::Full) if there are [`MAX_CERTIFICATES`] that stand for valid tokens,
    /// [`Unavailable`](ErrorKind::Unavailable) if somebody else binds it at the same time, or an error of the
    /// server.
    pub async fn bind(&self, name: &str, certificate: &Fingerprint) -> Result<Bound> {
        let key = binding_key(certificate)?;
        let found = self.store.get(&key_of(name)?).await?;
        let Some(token) = found.value else { return Ok(Bound::NoToken) };
        let token = Record::of(&token)?.info(name);
        if token.is_expired(found.now) {
            return Ok(Bound::Expired);
        }
        let there = self.store.get(&key).await?.value;
        // A certificate whose entry cannot be read stands for nobody.
        match self.token_of(there.as_ref()).await {
            Ok(Some(bound)) if bound.name != name => return Ok(Bound::Taken(bound.name)),
            Ok(Some(_)) => return Ok(Bound::Done),
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            Err(error) => return Err(error),
        }
        if there.is_none() && !self.has_room().await? {
            let text = format!("{MAX_CERTIFICATES} certificates are bound to tokens: unbind one first");
            return Err(Error::new(ErrorKind::Full, text));
        }
        let sha256 = token.fingerprint().to_owned();
        let binding = Binding { format: FORMAT, token: token.name, sha256 };
        let change = Change::put(key, unchanged(there.as_ref()), encode(&binding)?);
        match self.store.apply(change).await?.value {
            Applied::Done => Ok(Bound::Done),
            Applied::Conflict(_) => {
                let text = "somebody else is binding this certificate: see which token it is bound to, and try again";
                Err(Error::new(ErrorKind::Unavailable, text))
            }
        }
    }

    /// Makes a certificate stand for nobody. Services refuse it within a second. Returns whether it stood for
    /// anybody.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn unbind(&self, certificate: &Fingerprint) -> Result<bool> {
        self.delete_entry(&binding_key(certificate)?).await
    }

    /// Returns the token that a certificate stands for, if the token is valid. Asks the store twice. It does
    /// not check whether the client holds the key of the certificate, or what the certificate's authority
    /// says about it.
    ///
    /// # Errors
    /// If an entry cannot be read, or an error of the server.
    pub async fn of_certificate(&self, certificate: &Fingerprint) -> Result<Option<TokenInfo>> {
        let found = self.store.get(&binding_key(certificate)?).await?;
        self.token_of(found.value.as_ref()).await
    }

    /// Returns the certificates that stand for tokens, each with the name of its token, in the order of these
    /// names. Entries that cannot be read are left out.
    ///
    /// # Errors
    /// Errors of the server.
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

    /// Deletes the bindings to a deleted token: they stand for nobody, but take up room.
    pub(super) async fn unbind_all(&self, name: &str) -> Result<()> {
        for entry in self.bindings().await? {
            if read(&entry).is_some_and(|(binding, _)| binding.token == name) {
                self.store.apply(Change::delete(entry.key.clone(), unchanged(Some(&entry)))).await?;
            }
        }
        Ok(())
    }

    /// Returns whether one more certificate can be bound. If there is no room, it first deletes bindings that
    /// stand for nobody, because their tokens have expired, are gone, or were created again. Entries that
    /// cannot be read are kept: a newer release may be able to read them.
    async fn has_room(&self) -> Result<bool> {
        let bindings = self.bindings().await?;
        if bindings.len() < MAX_CERTIFICATES {
            return Ok(true);
        }
        // Listed after the bindings, so that the token of each binding is included.
        let tokens = self.store.list_all(TOKENS, super::MAX_LISTED).await?;
        let dead = bindings.iter().filter(|entry| {
            read(entry).is_some_and(|(binding, _)| stands_for_nobody(&binding, &tokens.value, tokens.now))
        });
        let changes: Vec<_> =
            dead.map(|entry| Change::delete(entry.key.clone(), unchanged(Some(entry)))).collect();
        let mut left = bindings.len();
        for some in changes.chunks(MAX_CONTROL_CHANGES) {
            let applied = self.store.apply_all(some.to_vec()).await?.value;
            // An entry that is no longer there was deleted by somebody else.
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

/// Whether the token of a binding is not among the valid `tokens`. A token that cannot be read may be valid.
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
