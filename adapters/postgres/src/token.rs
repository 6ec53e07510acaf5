//! What a lease is proved with.

use std::fmt::Write;

use anyqueue::adapter::{Lease, Token};
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use uuid::Uuid;

const SECRET_BYTES: usize = 16;
const PART_BYTES: usize = 4;

/// Where a row was when it was claimed, what the server calls a tid: the quickest way to it, if it is still there.
///
/// As the server sends it, four bytes for the page and two for the row in it. It goes back as text: sqlx would ask the server about
/// a type that it does not know, which loses the statement where none is prepared for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    page: u32,
    row: u16,
}

impl Place {
    /// `None` if it has not the right length.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (page, row) = bytes.split_at_checked(4)?;
        Some(Self {
            page: u32::from_be_bytes(page.try_into().ok()?),
            row: u16::from_be_bytes(row.try_into().ok()?),
        })
    }

    /// As an element of an array in text.
    fn write(self, text: &mut String) {
        let Self { page, row } = self;
        // Writing to memory does not fail.
        let _ = write!(text, "\"({page},{row})\"");
    }
}

/// An array of places, in text.
fn places(proofs: impl Iterator<Item = Proof>) -> String {
    let mut text = String::from("{");
    for proof in proofs {
        if text.len() > 1 {
            text.push(',');
        }
        proof.place.write(&mut text);
    }
    text.push('}');
    text
}

/// The message by its partition's number and its id, the 128 random bits of the claim, and where it was then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Proof {
    pub(crate) id: Uuid,
    pub(crate) part: i32,
    pub(crate) secret: Uuid,
    pub(crate) place: Place,
}

impl Proof {
    /// A token of another form proves nothing.
    pub(crate) fn of(lease: &Lease) -> Option<Self> {
        let (secret, rest) = lease.token.as_bytes().split_at_checked(SECRET_BYTES)?;
        let (part, place) = rest.split_at_checked(PART_BYTES)?;
        Some(Self {
            id: Uuid::from_bytes(*lease.id.as_bytes()),
            part: i32::from_be_bytes(part.try_into().ok()?),
            secret: Uuid::from_slice(secret).ok()?,
            place: Place::read(place)?,
        })
    }
}

/// The token of a claim. What finds the row goes with it, so that no settlement has to look it up by its partition's name.
pub(crate) fn token(secret: Uuid, part: i32, place: Place) -> Token {
    let Place { page, row } = place;
    Token::from_bytes(
        [&secret.as_bytes()[..], &part.to_be_bytes(), &page.to_be_bytes(), &row.to_be_bytes()].concat(),
    )
}

/// Binds what finds and proves: the partitions, the ids, the secrets.
pub(crate) fn bind_proofs(
    query: Query<'static, Postgres, PgArguments>,
    proofs: impl Iterator<Item = Proof>,
) -> Query<'static, Postgres, PgArguments> {
    let (mut parts, mut ids, mut secrets) = (Vec::new(), Vec::new(), Vec::new());
    for Proof { id, part, secret, .. } in proofs {
        parts.push(part);
        ids.push(id);
        secrets.push(secret);
    }
    query.bind(parts).bind(ids).bind(secrets)
}

/// The same, and the places.
pub(crate) fn bind_proofs_and_places(
    query: Query<'static, Postgres, PgArguments>,
    proofs: impl Iterator<Item = Proof> + Clone,
) -> Query<'static, Postgres, PgArguments> {
    bind_proofs(query, proofs.clone()).bind(places(proofs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyqueue::{MessageId, PartitionId};

    #[test]
    fn a_token_gives_back_what_it_was_made_of_and_one_of_another_form_proves_nothing() {
        let (id, secret, place) = (MessageId::new(), Uuid::new_v4(), Place { page: 70_000, row: 513 });
        let lease = |token| Lease { partition: PartitionId::new("p").unwrap(), id, token };
        let made = token(secret, 7, place);
        let proof = Proof { id: Uuid::from_bytes(*id.as_bytes()), part: 7, secret, place };
        assert_eq!(Proof::of(&lease(made.clone())), Some(proof));
        assert_eq!(places([proof, proof].into_iter()), r#"{"(70000,513)","(70000,513)"}"#);
        assert_eq!(places(std::iter::empty()), "{}");
        for wrong in [&made.as_bytes()[1..], &made.as_bytes()[..20], &[made.as_bytes(), b"x"].concat()] {
            assert_eq!(Proof::of(&lease(Token::from_bytes(wrong.to_vec()))), None);
        }
    }
}
