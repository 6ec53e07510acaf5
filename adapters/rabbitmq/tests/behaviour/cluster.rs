//! Three nodes, one of which dies.

use std::time::Duration;

use anyqueue_rabbitmq::RabbitMqQueue;
use anyqueue_testkit::{RabbitCluster, RabbitMq};

use crate::common::part;
use crate::load::Load;

const MESSAGES: usize = 30_000;
/// For the other nodes to notice and to vote, on a busy machine.
const HEALED: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_of_a_queue_killed_under_load_loses_nothing_and_the_same_handles_go_on() {
    let Some(cluster) = RabbitCluster::start_if_installed(RabbitMq::new()).await.unwrap() else { return };
    let url = format!("{}&prefix=test&connect_timeout=3s&call_timeout=5s", cluster.url());
    let (first, second) =
        (RabbitMqQueue::open(&url).await.unwrap(), RabbitMqQueue::open(&url).await.unwrap());
    let load = Load::start(&first, &second, &part("p")).await;
    for share in [5, 2] {
        load.reach(MESSAGES / share).await;
        let leader = cluster.leader_of("test:p:0").await.unwrap().expect("the queue has a leader");
        let node = &cluster.nodes()[leader];
        node.kill().await.unwrap();
        let took = load.go_on(HEALED).await;
        println!("went on {took:?} after the leader was killed");
        node.restart().await.unwrap();
        load.go_on(HEALED).await;
    }
    load.account(MESSAGES).await;
}
