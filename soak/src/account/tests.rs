//! The account finds everything that is wrong, and names it correctly.

use anyqueue::{EndState, MessageId};

use super::{Account, End, EndedTask, Found, Keeping, MoveGuarantee};

const INSIDE: Keeping = Keeping { is_atomic: true, is_confirmed: true };
const BESIDE: Keeping = Keeping { is_atomic: false, is_confirmed: true };
const BESIDE_UNCONFIRMED: Keeping = Keeping { is_atomic: false, is_confirmed: false };

/// Returns an account in which one task was pushed, ended and settled as succeeded, and what would be found
/// of it.
fn one() -> (Account, MessageId, Found) {
    let (account, id) = (Account::new(MoveGuarantee::Atomic), MessageId::new());
    push(&account, id);
    let number = settle(&account, id, EndState::Succeeded);
    let found = Found { ended: vec![ended(id, EndState::Succeeded, number)], ..Found::default() };
    (account, id, found)
}

fn push(account: &Account, id: MessageId) {
    account.attempt(id);
    account.pushed(id, true);
}

fn settle(account: &Account, id: MessageId, state: EndState) -> u64 {
    account.delivered(id);
    let number = account.say(id, None, state);
    account.ended(id, End::Removal);
    account.confirmed(id, number);
    number
}

fn ended(id: MessageId, state: EndState, number: u64) -> EndedTask {
    EndedTask { id, state, worker: Some(number.to_string().into()) }
}

fn says(account: &Account, found: &Found) -> Vec<String> {
    account.ledger_violations(found, INSIDE)
}

#[test]
fn a_right_account_is_right() {
    let (account, _, mut found) = one();
    let (live, dead) = (MessageId::new(), MessageId::new());
    for id in [live, dead] {
        push(&account, id);
    }
    account.park(live);
    (found.live, found.dead) = (vec![live], vec![dead]);
    assert_eq!(says(&account, &found), [""; 0]);
}

#[test]
fn a_lost_task_is_found() {
    let (account, _, _) = one();
    assert_eq!(
        says(&account, &Found::default()),
        ["1 acknowledged tasks neither ended nor live nor are dead"]
    );
}

#[test]
fn a_doubled_task_is_found_wherever_it_is() {
    for double in ["live", "dead", "ended"] {
        let (account, id, mut found) = one();
        match double {
            "live" => found.live.push(id),
            "dead" => found.dead.push(id),
            _ => found.ended.push(found.ended[0].clone()),
        }
        assert_eq!(says(&account, &found), ["1 tasks are in two places"], "{double}");
    }
}

#[test]
fn a_push_that_nobody_answered_may_be_there_once_and_not_twice_unless_it_was_repeated() {
    let (account, id) = (Account::new(MoveGuarantee::Atomic), MessageId::new());
    account.attempt(id);
    account.pushed(id, false);
    let twice = Found { live: vec![id, id], ..Found::default() };
    assert_eq!(says(&account, &Found::default()), [""; 0]);
    assert_eq!(says(&account, &Found { live: vec![id], ..Found::default() }), [""; 0]);
    assert_eq!(says(&account, &twice), ["1 tasks are in two places"]);
    account.attempt(id);
    assert_eq!(says(&account, &twice), [""; 0]);
}

#[test]
fn a_wrongly_ended_task_is_found() {
    let (account, _, mut found) = one();
    found.ended[0].state = EndState::Cancelled;
    assert_eq!(says(&account, &found), ["1 tasks ended otherwise than was said"]);
    found.ended[0].state = EndState::Succeeded;
    found.ended[0].worker = Some("99".into());
    let said = says(&account, &found);
    assert!(said.contains(&"1 tasks ended otherwise than was said".to_owned()), "{said:?}");
}

#[test]
fn the_end_that_is_kept_is_the_one_that_was_confirmed() {
    let (account, id) = (Account::new(MoveGuarantee::Atomic), MessageId::new());
    push(&account, id);
    let lost = account.say(id, None, EndState::Cancelled);
    settle(&account, id, EndState::Succeeded);
    let found = Found { ended: vec![ended(id, EndState::Cancelled, lost)], ..Found::default() };
    assert_eq!(says(&account, &found), ["1 ends that were confirmed are not those that are kept"]);
}

#[test]
fn a_task_that_nobody_pushed_is_found() {
    let (account, _, mut found) = one();
    found.live.push(MessageId::new());
    assert_eq!(says(&account, &found), ["1 tasks are there that nobody pushed"]);
}

#[test]
fn a_task_that_is_bound_to_an_end_has_to_come_to_it() {
    let account = Account::new(MoveGuarantee::Atomic);
    let (good, bad) = (MessageId::new(), MessageId::new());
    for (id, bound) in [(good, EndState::Succeeded), (bad, EndState::Failed)] {
        push(&account, id);
        account.bind(id, bound);
    }
    let by_worker = |id| EndedTask { id, state: EndState::Succeeded, worker: Some("a worker".into()) };
    let right = Found { dead: vec![bad], ended: vec![by_worker(good)], ..Found::default() };
    assert_eq!(says(&account, &right), [""; 0]);
    let wrong = Found { dead: vec![good], ended: vec![by_worker(bad)], ..Found::default() };
    assert_eq!(says(&account, &wrong), ["2 tasks ended otherwise than was said"]);
}

/// If the end is stored before the settlement, a consumer that has lost a task may leave one; a consumer that
/// has not lost it may not.
#[test]
fn only_beside_the_queue_may_an_end_be_left_of_what_is_dead_and_only_an_unconfirmed_one() {
    let (account, id) = (Account::new(MoveGuarantee::Atomic), MessageId::new());
    push(&account, id);
    let number = account.say(id, None, EndState::Succeeded);
    let found =
        Found { dead: vec![id], ended: vec![ended(id, EndState::Succeeded, number)], ..Found::default() };
    let two = ["1 tasks are in two places"];
    assert_eq!(account.ledger_violations(&found, BESIDE), [""; 0]);
    assert_eq!(account.ledger_violations(&found, INSIDE), two);
    account.confirmed(id, number);
    assert_eq!(account.ledger_violations(&found, BESIDE), two);
    assert_eq!(account.ledger_violations(&found, BESIDE_UNCONFIRMED), [""; 0]);
}

/// A queue may count a later delivery lower, but no end may be kept that is lower than the confirmed one.
#[test]
fn beside_the_queue_an_unconfirmed_end_is_kept_only_if_it_is_the_greater() {
    for (delivery, is_right) in [(3, true), (1, false)] {
        let (account, id) = (Account::new(MoveGuarantee::Atomic), MessageId::new());
        push(&account, id);
        let lost = account.say(id, Some(delivery), EndState::Succeeded);
        let kept = account.say(id, Some(2), EndState::Succeeded);
        account.confirmed(id, kept);
        let found = Found { ended: vec![ended(id, EndState::Succeeded, lost)], ..Found::default() };
        assert_eq!(account.ledger_violations(&found, BESIDE).is_empty(), is_right);
        assert_eq!(account.ledger_violations(&found, INSIDE).len(), 1);
    }
}
