//! Deliveries in the form in which they are handed out: sealed, so that a delivery that is sent back is known
//! to come from this service.

use anyqueue::control::{Change, ControlStore, Expect, Key};
use anyqueue::{DetachedDelivery, Error, ErrorKind, Result};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// The entry through which instances over one store agree on the key.
const KEY_ENTRY: &str = "server/seal";
/// The length of the key, and of the part of the HMAC-SHA-256 that is sent along: 128 bits cannot be guessed.
const KEY_BYTES: usize = 32;
const MAC_BYTES: usize = 16;

const SEALED: u8 = 1;
const PINNED: u8 = 2;

/// The contents of a sealed delivery.
pub(crate) enum Opened {
    /// All that is needed to settle it.
    Detached(Box<DetachedDelivery>),
    /// The name under which an instance keeps it.
    Pinned { instance: u64, pin: u128 },
}

/// Seals deliveries, and opens them.
pub(crate) struct Sealer {
    /// With the key, and cloned for each delivery: to begin with the key takes two rounds of SHA-256.
    mac: Hmac<Sha256>,
}

#[derive(Serialize, Deserialize)]
struct StoredKey {
    format: u32,
    key: String,
}

impl Sealer {
    /// Creates a sealer with a key of its own: nobody else can open what it seals.
    pub(crate) fn random() -> Self {
        Self::of(&random_key())
    }

    fn of(key: &[u8; KEY_BYTES]) -> Self {
        Self { mac: mac_of(key) }
    }

    /// Creates a sealer with the key that all instances over this store share; the first instance creates the
    /// key.
    pub(crate) async fn shared(store: &ControlStore) -> Result<Self> {
        let own = random_key();
        let stored = StoredKey { format: 1, key: BASE64.encode(own) };
        let value = serde_json::to_vec(&stored).map_err(|error| {
            Error::new(ErrorKind::Internal, "the key cannot be written").with_source(error)
        })?;
        let applied = store.apply(Change::put(Key::new(KEY_ENTRY)?, Expect::Absent, value)).await?.value;
        let anyqueue::control::Applied::Conflict(Some(entry)) = applied else { return Ok(Self::of(&own)) };
        let damaged = || {
            let text = format!(
                "the control entry {KEY_ENTRY} is no key: delete it, and what is handed out comes back at its lease's end"
            );
            Error::new(ErrorKind::Corrupt, text)
        };
        let stored: StoredKey = serde_json::from_slice(&entry.value).map_err(|_| damaged())?;
        let key = BASE64.decode(stored.key).map_err(|_| damaged())?;
        let key: [u8; KEY_BYTES] = key.try_into().map_err(|_| damaged())?;
        Ok(Self::of(&key))
    }

    pub(crate) fn seal(&self, delivery: &DetachedDelivery) -> String {
        self.signed(SEALED, &delivery.to_bytes())
    }

    pub(crate) fn pinned(&self, instance: u64, pin: u128) -> String {
        let mut name = Vec::with_capacity(24);
        name.extend_from_slice(&instance.to_be_bytes());
        name.extend_from_slice(&pin.to_be_bytes());
        self.signed(PINNED, &name)
    }

    fn signed(&self, kind: u8, content: &[u8]) -> String {
        let mut bytes = Vec::with_capacity(1 + content.len() + MAC_BYTES);
        bytes.push(kind);
        bytes.extend_from_slice(content);
        let mac = self.mac(&bytes).finalize().into_bytes();
        bytes.extend_from_slice(mac.get(..MAC_BYTES).unwrap_or_default());
        BASE64.encode(bytes)
    }

    /// Opens a sealed delivery; `None` if this service did not seal it.
    pub(crate) fn open(&self, sealed: &str) -> Option<Opened> {
        let bytes = BASE64.decode(sealed).ok()?;
        let (content, mac) = bytes.split_at_checked(bytes.len().checked_sub(MAC_BYTES)?)?;
        // Compares in constant time.
        self.mac(content).verify_truncated_left(mac).ok()?;
        let (kind, content) = content.split_first()?;
        match *kind {
            SEALED => DetachedDelivery::from_bytes(content).ok().map(Box::new).map(Opened::Detached),
            PINNED => {
                let (instance, pin) = content.split_at_checked(8)?;
                let instance = u64::from_be_bytes(instance.try_into().ok()?);
                Some(Opened::Pinned { instance, pin: u128::from_be_bytes(pin.try_into().ok()?) })
            }
            _ => None,
        }
    }

    fn mac(&self, bytes: &[u8]) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(bytes);
        mac
    }
}

fn random_key() -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    for part in key.chunks_mut(16) {
        // From the operating system, like every random id.
        part.copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    }
    key
}

/// HMAC-SHA-256 takes keys of any length.
#[allow(clippy::expect_used, reason = "it never fails")]
pub(crate) fn mac_of(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("a key of any length")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn what_was_changed_or_sealed_by_others_is_not_opened() {
        let sealer = Sealer::random();
        let pinned = sealer.pinned(7, 9);
        assert!(matches!(sealer.open(&pinned), Some(Opened::Pinned { instance: 7, pin: 9 })));
        assert!(Sealer::random().open(&pinned).is_none(), "another key");
        let bytes = BASE64.decode(&pinned).unwrap();
        for place in 0..bytes.len() {
            for bit in 0..8 {
                let mut forged = bytes.clone();
                forged[place] ^= 1 << bit;
                assert!(sealer.open(&BASE64.encode(forged)).is_none(), "byte {place}, bit {bit}");
            }
            assert!(sealer.open(&BASE64.encode(&bytes[..place])).is_none(), "cut at {place}");
        }
        for nonsense in ["", "=", "ä", "AAAA", &"A".repeat(100_000)] {
            assert!(sealer.open(nonsense).is_none());
        }
    }
}
