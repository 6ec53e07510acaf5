//! Machines that are kept for one application.

use anyqueue::ErrorKind;
use anyqueue::control::{Change, Expect, Key};
use anyqueue_control::registry::{MAX_APPLICATION_BYTES, MemberOptions, host_name};
use futures_util::future::join_all;

use crate::bed::Bed;

fn of(application: &str) -> MemberOptions {
    MemberOptions::default().with_application(application)
}

#[tokio::test]
async fn on_a_machine_that_is_kept_for_an_application_no_worker_of_others_starts() {
    let bed = Bed::new();
    let before = bed.worker("before");
    let _before = bed.registry.join(&before, MemberOptions::default()).await.unwrap();
    bed.registry.dedicate(&host_name(), "video").await.unwrap();
    for options in [MemberOptions::default(), of("mail"), of("")] {
        let refused = bed.registry.join(&bed.worker("other"), options).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
    let refused = bed.registry.join(&bed.worker("other"), of("mail")).await.unwrap_err().to_string();
    assert!(refused.contains("video") && refused.contains(&host_name()), "{refused}");
    let _own = bed.registry.join(&bed.worker("own"), of("video")).await.unwrap();
    assert_eq!(bed.names().await, ["before", "own"], "who had joined goes on");
    assert_eq!(bed.info("own").await.unwrap().application.as_deref(), Some("video"));

    assert_eq!(bed.registry.release(&host_name()).await.unwrap().as_deref(), Some("video"));
    assert_eq!(bed.registry.release(&host_name()).await.unwrap(), None);
    let _other = bed.registry.join(&bed.worker("other"), of("mail")).await.unwrap();
}

#[tokio::test]
async fn machines_of_others_are_no_concern_of_a_worker() {
    let bed = Bed::new();
    bed.registry.dedicate("elsewhere", "video").await.unwrap();
    let _joined = bed.registry.join(&bed.worker("a"), MemberOptions::default()).await.unwrap();
}

#[tokio::test]
async fn of_many_that_want_a_machine_at_once_one_gets_it_and_the_others_hear_whose_it_is() {
    let bed = Bed::new();
    let names: Vec<_> = (0..10).map(|n| format!("app-{n}")).collect();
    let asked = join_all(names.iter().map(|name| bed.registry.dedicate("node", name))).await;
    let nodes = bed.registry.nodes().await.unwrap();
    let [node] = nodes.as_slice() else { panic!("{nodes:?}") };
    for (name, answer) in names.iter().zip(asked) {
        match answer {
            Ok(()) => assert_eq!(&node.application, name),
            Err(error) => assert!(error.to_string().contains(&node.application), "{error}"),
        }
    }
    bed.registry.dedicate("node", &node.application).await.unwrap();
}

#[tokio::test]
async fn names_that_no_machine_or_application_can_have_are_refused() {
    let bed = Bed::new();
    let long = "a".repeat(MAX_APPLICATION_BYTES + 1);
    for (host, application) in [("", "a"), ("h", ""), ("h", &long), ("h", "a\nb"), (&"h".repeat(2000), "a")] {
        let refused = bed.registry.dedicate(host, application).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{host} {application}");
    }
    bed.registry.dedicate("h", &long[1..]).await.unwrap();
}

#[tokio::test]
async fn an_entry_that_cannot_be_read_lets_nobody_start_and_can_be_released() {
    let bed = Bed::new();
    let key = Key::new(format!("node/{}", host_name())).unwrap();
    let put = Change::put(key, Expect::Any, b"{".to_vec());
    assert!(bed.queue.control().unwrap().apply(put).await.unwrap().value.is_done());
    let refused = bed.registry.join(&bed.worker("a"), of("video")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert!(bed.registry.release(&host_name()).await.unwrap().is_some());
    let _joined = bed.registry.join(&bed.worker("a"), of("video")).await.unwrap();
}
