//! Where a test that runs on each backend has its queues.

use anyqueue::Queue;

use crate::bed::over;

/// Where the queues and entries of one test are.
pub(crate) enum Place {
    Memory(Queue),
    At(String),
}

impl Place {
    /// A client of its own, where there are servers.
    pub(crate) async fn open(&self) -> Queue {
        let url = match self {
            Self::Memory(queue) => return queue.clone(),
            Self::At(url) => url,
        };
        let queue = over(anyqueue_backends::open(url).await.unwrap());
        queue.init().await.unwrap();
        queue
    }
}

/// A place for each test on a server, by what keeps them apart there.
pub(crate) fn apart<'a>(url: &'a str, option: &'a str) -> impl FnMut() -> Place + 'a {
    let separator = if url.contains('?') { '&' } else { '?' };
    let mut number = 0;
    move || {
        number += 1;
        Place::At(format!("{url}{separator}{option}=audit_{}_{number}", std::process::id()))
    }
}
