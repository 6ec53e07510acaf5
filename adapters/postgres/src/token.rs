//! The lease token.

use std::fmt::Write;

use anyqueue::adapter::{Lease, Token};
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use uuid::Uuid;

const SECRET_BYTES: usize = 16;
const PART_BYTES: usize = 4;

/// The position of a row when it was claimed (PostgreSQL's `tid`). It is the fastest way to the row, if that
/// is still there.
///
/// The server sends four bytes for the page and two for the row within it. It is sent back as text, because
/// sqlx would ask the server about a type that it does not know, and then loses a statement that is not
/// prepared permanently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TupleId {
    page: u32,
    row: u16,
}

impl TupleId {
    /// Returns `None` if it has the wrong length.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (page, row) = bytes.split_at_checked(4)?;
        Some(Self {
            page: u32::from_be_bytes(page.try_into().ok()?),
            row: u16::from_be_bytes(row.try_into().ok()?),
        })
    }

    /// Writes it as an element of a text array.
    fn write(self, text: &mut String) {
        let Self { page, row } = self;
        // Writing to memory does not fail.
        let _ = write!(text, "\"({page},{row})\"");
    }
}

/// An array of tuple ids, as text.
fn tids(proofs: impl Iterator<Item = Proof>) -> String {
    let mut text = String::from("{");
    for proof in proofs {
        if text.len() > 1 {
            text.push(',');
        }
        proof.tid.write(&mut text);
    }
    text.push('}');
    text
}

/// The proof of a lease: the message by its partition's number and its id, the 128 random bits of the claim, and its tuple id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Proof {
    pub(crate) id: Uuid,
    pub(crate) part: i32,
    pub(crate) secret: Uuid,
    pub(crate) tid: TupleId,
}

impl Proof {
    /// Returns `None` for a token of another form, which proves nothing.
    pub(crate) fn of(lease: &Lease) -> Option<Self> {
        let (secret, rest) = lease.token.as_bytes().split_at_checked(SECRET_BYTES)?;
        let (part, tid) = rest.split_at_checked(PART_BYTES)?;
        Some(Self {
            id: Uuid::from_bytes(*lease.id.as_bytes()),
            part: i32::from_be_bytes(part.try_into().ok()?),
            secret: Uuid::from_slice(secret).ok()?,
            tid: TupleId::read(tid)?,
        })
    }
}

/// Returns the token of a claim. It also contains what locates the row, so that no settlement has to look up
/// its partition by name.
pub(crate) fn token(secret: Uuid, part: i32, tid: TupleId) -> Token {
    let TupleId { page, row } = tid;
    Token::from_bytes(
        [&secret.as_bytes()[..], &part.to_be_bytes(), &page.to_be_bytes(), &row.to_be_bytes()].concat(),
    )
}

/// Binds the partitions, ids and secrets.
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

/// Binds the same, and the tuple ids.
pub(crate) fn bind_proofs_and_tids(
    query: Query<'static, Postgres, PgArguments>,
    proofs: impl Iterator<Item = Proof> + Clone,
) -> Query<'static, Postgres, PgArguments> {
    bind_proofs(query, proofs.clone()).bind(tids(proofs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyqueue::{MessageId, PartitionId};

    #[test]
    fn a_token_gives_back_what_it_was_made_of_and_one_of_another_form_proves_nothing() {
        let (id, secret, tid) = (MessageId::new(), Uuid::new_v4(), TupleId { page: 70_000, row: 513 });
        let lease = |token| Lease { partition: PartitionId::new("p").unwrap(), id, token };
        let made = token(secret, 7, tid);
        let proof = Proof { id: Uuid::from_bytes(*id.as_bytes()), part: 7, secret, tid };
        assert_eq!(Proof::of(&lease(made.clone())), Some(proof));
        assert_eq!(tids([proof, proof].into_iter()), r#"{"(70000,513)","(70000,513)"}"#);
        assert_eq!(tids(std::iter::empty()), "{}");
        for wrong in [&made.as_bytes()[1..], &made.as_bytes()[..20], &[made.as_bytes(), b"x"].concat()] {
            assert_eq!(Proof::of(&lease(Token::from_bytes(wrong.to_vec()))), None);
        }
    }
}
