//! The statements that settle, with their arguments.

use anyqueue::adapter::Action;
use sqlx::Postgres;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;

use crate::ends::EndColumns;
use crate::settlements::{Kind, PendingSettlement};
use crate::sql::{Statements, int, millis};
use crate::successors::{self, SuccessorColumns};
use crate::token::{bind_proofs, bind_proofs_and_tids};

/// The statement that settles these, and stores any successors and ends.
pub(crate) fn together<'p>(
    statements: &Statements,
    kind: Kind,
    pending: &'p [PendingSettlement<'p>],
) -> Query<'p, Postgres, PgArguments> {
    let ends = end_columns(pending);
    if pending.iter().any(PendingSettlement::has_successors) {
        let query = query_then(statements, kind, pending, !ends.is_empty());
        return ends.bind(successor_columns(pending).bind(query));
    }
    let proofs = pending.iter().map(|pending| pending.proof);
    match kind {
        Kind::Remove if ends.is_empty() => bind_proofs_and_tids(statements.remove.query(), proofs),
        Kind::Remove => {
            let text = statements.remove_end.query_of(ends.bytes());
            ends.bind(bind_proofs_and_tids(text, proofs))
        }
        Kind::Release => bind_releases(statements.give_back.query(), pending),
        Kind::Move if ends.is_empty() => bind_moves(statements.move_to.query(), pending),
        Kind::Move => ends.bind(bind_moves(statements.move_end.query(), pending)),
    }
}

/// The statement that settles one delivery and stores the first part of its successors, and the remaining
/// parts.
pub(crate) fn in_parts<'p>(
    statements: &Statements,
    kind: Kind,
    pending: &'p PendingSettlement<'p>,
) -> (Query<'p, Postgres, PgArguments>, impl Iterator<Item = SuccessorColumns<'p>>) {
    let mut parts =
        successors::parts(&pending.then).map(|part| SuccessorColumns::of(1, [(1, part)].into_iter()));
    let first = parts.next().unwrap_or_default();
    let pending = std::slice::from_ref(pending);
    let ends = end_columns(pending);
    let query = query_then(statements, kind, pending, !ends.is_empty());
    (ends.bind(first.bind(query)), parts)
}

/// The statement that settles and stores successors and, if `stores_ends`, ends, before those are bound.
fn query_then<'p>(
    statements: &Statements,
    kind: Kind,
    pending: &'p [PendingSettlement<'p>],
    stores_ends: bool,
) -> Query<'p, Postgres, PgArguments> {
    match kind {
        Kind::Remove if stores_ends => bind_removals(statements.remove_then_end.query(), pending),
        Kind::Remove => bind_removals(statements.remove_then.query(), pending),
        Kind::Release => bind_releases(statements.give_back_then.query(), pending),
        Kind::Move if stores_ends => bind_moves(statements.move_then_end.query(), pending),
        Kind::Move => bind_moves(statements.move_then.query(), pending),
    }
}

/// Binds the proofs of removals, and what they store, for the statement that also pulls.
pub(crate) fn bind_exchange<'p>(
    query: Query<'static, Postgres, PgArguments>,
    pending: &'p [PendingSettlement<'p>],
) -> Query<'p, Postgres, PgArguments> {
    let ends = end_columns(pending);
    if pending.iter().any(PendingSettlement::has_successors) {
        return ends.bind(successor_columns(pending).bind(bind_removals(query, pending)));
    }
    ends.bind(bind_proofs_and_tids(query, pending.iter().map(|pending| pending.proof)))
}

fn bind_removals<'p>(
    query: Query<'static, Postgres, PgArguments>,
    pending: &'p [PendingSettlement<'p>],
) -> Query<'p, Postgres, PgArguments> {
    bind_proofs(query, pending.iter().map(|pending| pending.proof))
}

fn bind_releases<'p>(
    query: Query<'static, Postgres, PgArguments>,
    pending: &'p [PendingSettlement<'p>],
) -> Query<'p, Postgres, PgArguments> {
    let actions = pending.iter().map(|pending| match &pending.settlement.action {
        Action::Retry => (2, 0),
        Action::Postpone { delay, .. } => (3, millis(*delay)),
        _ => (1, 0),
    });
    let (codes, delays_ms): (Vec<i16>, Vec<i64>) = actions.unzip();
    let query: Query<'p, _, _> = bind_proofs(query, pending.iter().map(|pending| pending.proof));
    query.bind(codes).bind(delays_ms).bind(headers(pending))
}

fn bind_moves<'p>(
    query: Query<'static, Postgres, PgArguments>,
    pending: &'p [PendingSettlement<'p>],
) -> Query<'p, Postgres, PgArguments> {
    let targets = pending.iter().filter_map(|pending| match &pending.settlement.action {
        Action::Move { to, .. } => Some((to.name(), to.is_dead_letters())),
        _ => None,
    });
    let (names, deads): (Vec<&str>, Vec<bool>) = targets.unzip();
    let query: Query<'p, _, _> = bind_proofs(query, pending.iter().map(|pending| pending.proof));
    query.bind(names).bind(deads).bind(headers(pending))
}

fn headers<'p>(pending: &'p [PendingSettlement<'p>]) -> Vec<Option<&'p [u8]>> {
    pending.iter().map(|pending| pending.headers.as_deref()).collect()
}

/// Returns the successors in the order of the call, although the settlements are in another order.
fn successor_columns<'p>(pending: &'p [PendingSettlement<'p>]) -> SuccessorColumns<'p> {
    let mut owners: Vec<_> = (1..).zip(pending).filter(|(_, pending)| pending.has_successors()).collect();
    owners.sort_unstable_by_key(|(_, pending)| pending.index);
    let lists = owners.into_iter().map(|(number, pending)| (number, &*pending.then));
    SuccessorColumns::of(int(pending.len()), lists)
}

fn end_columns<'p>(pending: &'p [PendingSettlement<'p>]) -> EndColumns<'p> {
    EndColumns::of((1..).zip(pending).filter_map(|(number, pending)| Some((number, pending.end.as_ref()?))))
}
