//! Faults of calls for many.

use anyqueue::adapter::{Action, Extension, Lease, Settlement, Token};
use anyqueue::{MessageData, PartitionId};

use crate::Fault;
use crate::lab::*;

/// Extends all of them at once; what is there when the short leases are over.
async fn extended(lab: Lab, places: &[PartitionId], each: usize) -> String {
    let client = lab.open().await;
    let mut extensions = Vec::new();
    for place in places {
        client.push_to(place, many(each)).await;
        let request = anyqueue::adapter::PullRequest::new(each, SHORT, 25 * SHORT);
        let held = client.0.pull(place, request).await.unwrap();
        extensions.extend(held.into_iter().map(|held| Extension { lease: held.lease, duration: MINUTE }));
    }
    client.0.extend(&extensions).await;
    sleep(30 * SHORT).await;
    let mut back = 0;
    for place in places {
        back += client.pull_from(place, 1000).await.len();
    }
    back.to_string()
}

seen! {
    TokenByItsStart: "Lost", not "Settled", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        let mut held = client.one().await;
        held.lease.token = Token::from_bytes(held.lease.token.as_bytes()[..4].to_vec());
        shown(client.settle(&held, Action::Remove).await)
    };
    TokensInterchange: "Lost", not "Settled", async |lab| {
        let client = lab.open().await;
        client.push(many(2)).await;
        let held = [client.one().await, client.one().await];
        let lease = Lease { token: held[1].lease.token.clone(), ..held[0].lease.clone() };
        shown(client.0.settle(&[Settlement::new(lease, Action::Remove)]).await[0].as_ref().unwrap())
    };
    RefusedFailsBatch: "[Lost, Settled]", not "[Lost, Lost]", async |lab| {
        let client = lab.open().await;
        client.push(many(2)).await;
        let mut held = client.pull(2).await;
        held[0].lease.token = anyqueue::adapter::Token::random();
        client.settle_all([(&held[0], Action::Remove), (&held[1], Action::Remove)]).await
    };
    ExtendsFirstHundred: "0", not "10", async |lab| extended(lab, &[jobs()], 110).await;
    ExtendsOnePartition: "0", not "3", async |lab| extended(lab, &[jobs(), other()], 3).await;
    NineMovesReversed: "0 1 2 3 4 5 6 7 8", not "8 7 6 5 4 3 2 1 0", async |lab| {
        let client = lab.open().await;
        client.push(many(9)).await;
        let held = client.pull(9).await;
        client.settle_all(held.iter().map(|held| (held, move_to(&other())))).await;
        client.all_of(&other()).await
    };
    TooLargeIsSafe: "Never", not "Safe", async |lab| {
        let client = lab.open().await;
        let bytes = usize::try_from(client.0.capabilities().limits.message_bytes).unwrap() + 1;
        let answers = client.0.push(&jobs(), &[MessageData::from_bytes(vec![0; bytes])]).await;
        shown(answers[0].as_ref().unwrap_err().retry())
    };
}
