//! Tokens, which say who may ask a service for what. The store keeps only a digest of each.
//!
//! Each token is one entry of the [control store](anyqueue::control), `token/<name>`. Its secret is shown
//! once, when the token is created. The entry holds the SHA-256 of the secret, which is enough for 128 random
//! bits, since nobody can try them all.
//!
//! A client certificate can stand for a token: a service that identifies a client by TLS treats the
//! certificate like the token.

mod certificates;
mod fingerprint;
mod name;
mod record;
mod rights;
mod secret;

use std::time::{Duration, SystemTime};

use anyqueue::control::{Applied, Change, ControlStore, Expect, Key};
use anyqueue::{Error, ErrorKind, Result};

pub use certificates::{Bound, MAX_CERTIFICATES};
pub use fingerprint::Fingerprint;
pub use name::MAX_TOKEN_NAME_BYTES;
pub use record::TokenInfo;
pub use rights::{MAX_PATTERNS, Right, Rights};
pub use secret::Secret;

use crate::entry::{encode, unchanged, update};
use name::{TOKENS, key_of, name_of};
use record::Record;

/// The largest number of tokens in one store.
pub const MAX_TOKENS: usize = 1_000;
/// Clients that create tokens at the same time may exceed the limit a little.
const MAX_LISTED: usize = 2 * MAX_TOKENS;

/// The tokens in a control store.
#[derive(Clone, Debug)]
pub struct Tokens {
    store: ControlStore,
}

/// All tokens whose entries can be read, and the names of the others.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TokenList {
    /// In the order of their names.
    pub tokens: Vec<TokenInfo>,
    /// The names of tokens whose entries cannot be read, and why. These tokens grant nothing.
    pub unreadable: Vec<(String, Error)>,
}

impl Tokens {
    /// Returns the tokens of a store.
    #[must_use]
    pub const fn new(store: ControlStore) -> Self {
        Self { store }
    }

    /// Creates a token; returns `None` if there is one of that name already. The secret is never shown again.
    /// The token is valid for `valid_for` by the store's clock, or until it is deleted.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a bad name, no rights or bad patterns,
    /// [`Full`](ErrorKind::Full) if there are [`MAX_TOKENS`], or an error of the server.
    pub async fn create(
        &self,
        name: &str,
        rights: &Rights,
        valid_for: Option<Duration>,
    ) -> Result<Option<Secret>> {
        let key = key_of(name)?;
        rights.check()?;
        let found = self.store.list_all(TOKENS, MAX_LISTED).await?;
        if found.value.len() >= MAX_TOKENS {
            return Err(Error::new(
                ErrorKind::Full,
                format!("there are {MAX_TOKENS} tokens: delete one first"),
            ));
        }
        let now = found.now;
        let until = valid_for.map(|valid| until(now, valid)).transpose()?;
        let secret = Secret::random(name);
        let record = Record::new(rights, &secret, now, until);
        let change = Change::put(key, Expect::Absent, encode(&record)?);
        match self.store.apply(change).await?.value {
            Applied::Done => Ok(Some(secret)),
            Applied::Conflict(_) => Ok(None),
        }
    }

    /// Returns what a token may do, if the text is that of a valid token. Asks the store once.
    ///
    /// # Errors
    /// If its entry cannot be read, or an error of the server.
    pub async fn verify(&self, text: &str) -> Result<Option<TokenInfo>> {
        let Some(secret) = Secret::parse(text) else { return Ok(None) };
        let found = self.store.get(&key_of(secret.name())?).await?;
        let Some(entry) = found.value else { return Ok(None) };
        let record = Record::of(&entry)?;
        let info = record.info(secret.name());
        Ok((record.is_of(&secret) && !info.is_expired(found.now)).then_some(info))
    }

    /// Returns a token that was verified before as it is now, if it is still valid.
    ///
    /// # Errors
    /// If its entry cannot be read, or an error of the server.
    pub async fn still(&self, token: &TokenInfo) -> Result<Option<TokenInfo>> {
        let found = self.store.get(&key_of(&token.name)?).await?;
        let Some(entry) = found.value else { return Ok(None) };
        let info = Record::of(&entry)?.info(&token.name);
        Ok((info.fingerprint() == token.fingerprint() && !info.is_expired(found.now)).then_some(info))
    }

    /// Returns one token.
    ///
    /// # Errors
    /// If its entry cannot be read, or an error of the server.
    pub async fn get(&self, name: &str) -> Result<Option<TokenInfo>> {
        let found = self.store.get(&key_of(name)?).await?;
        found.value.map(|entry| Ok(Record::of(&entry)?.info(name))).transpose()
    }

    /// Returns all tokens, including expired ones.
    ///
    /// # Errors
    /// Errors of the server.
    pub async fn list(&self) -> Result<TokenList> {
        let found = self.store.list_all(TOKENS, MAX_LISTED).await?;
        let mut all = TokenList::default();
        for entry in &found.value {
            let name = name_of(&entry.key);
            match Record::of(entry) {
                Ok(record) => all.tokens.push(record.info(name)),
                Err(error) => all.unreadable.push((name.to_owned(), error)),
            }
        }
        Ok(all)
    }

    /// Deletes a token, even one that cannot be read, and the bindings of certificates to it. Services refuse
    /// the token within a second. Returns whether there was one.
    ///
    /// # Errors
    /// Errors of the server. The token may have been deleted all the same.
    pub async fn delete(&self, name: &str) -> Result<bool> {
        let was_there = self.delete_entry(&key_of(name)?).await?;
        self.unbind_all(name).await?;
        Ok(was_there)
    }

    async fn delete_entry(&self, key: &Key) -> Result<bool> {
        update(&self.store, key, |there| {
            let change = there.map(|entry| Change::delete(key.clone(), unchanged(Some(entry))));
            let was_there = change.is_some();
            Ok((change, was_there))
        })
        .await
    }
}

fn until(now: SystemTime, valid: Duration) -> Result<SystemTime> {
    let far = || Error::invalid("a token that expires too late: leave the time out");
    if valid.is_zero() {
        return Err(Error::invalid("a token that is never valid: give it some time"));
    }
    now.checked_add(valid).filter(|_| valid <= record::MAX_VALID).ok_or_else(far)
}
