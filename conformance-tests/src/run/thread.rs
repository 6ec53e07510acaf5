//! Runs work on a thread of its own.

use std::thread::Builder;

use tokio::sync::oneshot;

/// Does the work on a thread of its own. If the work never ends, the thread is abandoned; a blocking task of
/// the runtime would keep the runtime from ever shutting down.
pub(crate) async fn on_a_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let (say, told) = oneshot::channel();
    let thread = move || {
        let _ = say.send(work());
    };
    Builder::new().name(name.to_owned()).spawn(thread).map_err(|error| error.to_string())?;
    told.await.map_err(|_| "its thread panicked".to_owned())
}
