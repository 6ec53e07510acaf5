//! Which right each request needs. A request that is not in the table needs all of them.

use anyqueue_control::tokens::Right;
use axum::http::{HeaderMap, Method};

use crate::access::{Access, forbidden};
use crate::problem::Answer;

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing.
    Open,
    /// Any token.
    Token,
    /// A right; the queues are checked where they are named.
    Of(Right),
    /// A right for all queues: the request concerns none in particular.
    ForAll(Right),
}

use Need::{ForAll, Of, Open, Token};
use Right::{Admin, Manage, Push, Read, Work};

/// The header with which a worker shows that it makes the request for itself.
pub(crate) const SESSION: &str = "worker-session";
const FORGET: &str = "/v1/workers/{worker}";

const ROWS: &[(&str, &str, Need)] = &[
    ("POST", "/v1/partitions/{partition}/messages", Of(Push)),
    ("POST", "/v1/pull", Of(Work)),
    ("POST", "/v1/settle", Of(Work)),
    ("POST", "/v1/extend", Of(Work)),
    ("GET", "/v1/partitions", Of(Read)),
    ("GET", "/v1/partitions/{partition}", Of(Read)),
    ("POST", "/v1/partitions/{partition}/pause", Of(Manage)),
    ("POST", "/v1/partitions/{partition}/resume", Of(Manage)),
    ("GET", "/v1/partitions/{partition}/messages", Of(Read)),
    ("DELETE", "/v1/partitions/{partition}/messages", Of(Manage)),
    ("GET", "/v1/partitions/{partition}/dead", Of(Read)),
    ("DELETE", "/v1/partitions/{partition}/dead", Of(Manage)),
    ("POST", "/v1/partitions/{partition}/dead/redrive", Of(Manage)),
    ("GET", "/v1/tasks", Of(Read)),
    ("DELETE", "/v1/tasks", Of(Manage)),
    ("GET", "/v1/tasks/count", Of(Read)),
    ("GET", "/v1/tasks/series", Of(Read)),
    ("POST", "/v1/tasks/bulk", Of(Manage)),
    ("GET", "/v1/tasks/{id}", Of(Read)),
    ("DELETE", "/v1/tasks/{id}", Of(Manage)),
    ("GET", "/v1/tasks/{id}/result", Of(Read)),
    ("POST", "/v1/tasks/{id}/cancel", Of(Manage)),
    ("POST", "/v1/tasks/{id}/retry", Of(Manage)),
    // A worker may work on any queue.
    ("GET", "/v1/workers", ForAll(Read)),
    ("GET", "/v1/workers/{worker}", ForAll(Read)),
    // The tasks that they hold are checked where they are named.
    ("POST", "/v1/workers", Of(Work)),
    ("POST", "/v1/workers/{worker}/beat", Of(Work)),
    ("DELETE", FORGET, ForAll(Manage)),
    ("POST", "/v1/workers/{worker}/{order}", ForAll(Manage)),
    ("PUT", "/v1/workers/{worker}/cancel", ForAll(Manage)),
    ("GET", "/v1/cron", Of(Read)),
    ("GET", "/v1/cron/preview", Token),
    ("GET", "/v1/cron/{name}", Of(Read)),
    ("PUT", "/v1/cron/{name}", Of(Manage)),
    ("DELETE", "/v1/cron/{name}", Of(Manage)),
    ("POST", "/v1/cron/{name}/run", Of(Manage)),
    ("POST", "/v1/cron/{name}/pause", Of(Manage)),
    ("POST", "/v1/cron/{name}/resume", Of(Manage)),
    ("GET", "/v1/limits", Of(Read)),
    ("GET", "/v1/limits/{name}", Of(Read)),
    ("PUT", "/v1/limits/{name}", Of(Manage)),
    ("DELETE", "/v1/limits/{name}", Of(Manage)),
    ("GET", "/v1/tokens", ForAll(Admin)),
    ("GET", "/v1/tokens/{name}", ForAll(Admin)),
    ("PUT", "/v1/tokens/{name}", ForAll(Admin)),
    ("DELETE", "/v1/tokens/{name}", ForAll(Admin)),
    ("PUT", "/v1/tokens/{name}/certificates/{sha256}", ForAll(Admin)),
    ("DELETE", "/v1/tokens/{name}/certificates/{sha256}", ForAll(Admin)),
    ("POST", "/v1/jobs/RegisterWorker", Of(Work)),
    ("POST", "/v1/jobs/AlivePing", Of(Work)),
    ("POST", "/v1/jobs/Dequeue", Of(Work)),
    ("POST", "/v1/jobs/SetOutcome", Of(Work)),
    ("POST", "/v1/jobs/Enqueue", Of(Push)),
    ("GET", "/management/queue/notifications", Of(Read)),
    ("DELETE", "/management/queue/notifications", Of(Manage)),
    ("GET", "/management/queue/notifications/summary", Of(Read)),
    ("GET", "/management/queue/notifications/count", Of(Read)),
    ("GET", "/v1/audit", ForAll(Admin)),
    // The export contains what schedules push.
    ("GET", "/v1/export", ForAll(Admin)),
    ("POST", "/v1/import", ForAll(Manage)),
    ("GET", "/v1/events", Of(Read)),
    ("GET", "/livez", Open),
    ("GET", "/readyz", Open),
    ("GET", "/startupz", Open),
    // The measurements are labelled with the names of queues.
    ("GET", "/metrics", ForAll(Read)),
    ("GET", "/openapi.json", Token),
    // Pages.
    ("GET", "/", Of(Read)),
    ("GET", "/partitions/{partition}", Of(Read)),
    ("GET", "/tasks", Of(Read)),
    ("GET", "/tasks/{id}", Of(Read)),
    ("GET", "/tasks/confirm/{action}", Of(Manage)),
    ("GET", "/workers", ForAll(Read)),
    ("GET", "/dead", Of(Read)),
    ("GET", "/dead/confirm", Of(Manage)),
    ("GET", "/cron", Of(Read)),
    ("GET", "/cron/confirm", Of(Manage)),
    ("GET", "/limits", Of(Read)),
    ("GET", "/limits/confirm", Of(Manage)),
    ("GET", "/audit", ForAll(Admin)),
    ("POST", "/do/limits/{action}", Of(Manage)),
    ("POST", "/do/cron/{action}", Of(Manage)),
    ("POST", "/do/partitions/{partition}/{action}", Of(Manage)),
    ("POST", "/do/tasks/{id}/{action}", Of(Manage)),
    ("POST", "/do/tasks/{action}", Of(Manage)),
    ("POST", "/do/workers/{worker}/{order}", ForAll(Manage)),
    ("POST", "/do/dead/{action}", Of(Manage)),
    ("GET", "/login", Open),
    ("POST", "/login", Open),
    ("GET", "/assets/style.css", Open),
    ("GET", "/assets/live.js", Open),
    ("GET", "/assets/icon.svg", Open),
];

/// What a request needs, by the path of its route. Without a route there is nothing to do but to say so.
pub(crate) fn need(method: &Method, route: Option<&str>, headers: &HeaderMap) -> Need {
    let Some(route) = route else { return Token };
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    // A worker that leaves manages no other workers.
    if (method, route) == ("DELETE", FORGET) && headers.contains_key(SESSION) {
        return Of(Work);
    }
    let row = ROWS.iter().find(|(of, path, _)| *of == method && *path == route);
    row.map_or(ForAll(Admin), |(_, _, need)| *need)
}

impl Need {
    /// Whether a request with this method and need is entered in the audit trail: it manages, and may change
    /// something.
    pub(crate) fn is_audited(self, method: &Method) -> bool {
        matches!(self, Of(Manage | Admin) | ForAll(Manage | Admin)) && !method.is_safe()
    }

    /// Refuses a caller that lacks what is needed.
    pub(crate) fn check(self, access: &Access) -> Answer<()> {
        match self {
            Of(right) | ForAll(right) if !access.has(right) => {
                Err(forbidden(format!("this token lacks the right {right}")))
            }
            ForAll(_) if !access.covers_all() => {
                Err(forbidden("this concerns all queues, and this token is not for all"))
            }
            Open | Token | Of(_) | ForAll(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_that_is_described_is_in_the_table_once() {
        let description: serde_json::Value = serde_json::from_str(&crate::openapi()).unwrap();
        for (path, methods) in description["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys() {
                let method = method.to_uppercase();
                let rows = ROWS.iter().filter(|row| row.0 == method && row.1 == path).count();
                assert_eq!(rows, 1, "{method} {path}");
            }
        }
    }

    #[test]
    fn what_is_not_in_the_table_needs_everything() {
        let need = |method, route| need(&method, route, &HeaderMap::new());
        assert_eq!(need(Method::PATCH, Some("/v1/tasks")), ForAll(Admin));
        assert_eq!(need(Method::GET, Some("/v1/new")), ForAll(Admin));
        assert_eq!(need(Method::HEAD, Some("/v1/tasks")), Of(Read));
        assert_eq!(need(Method::GET, None), Token);
    }

    #[test]
    fn a_worker_forgets_itself_and_no_other() {
        let mut headers = HeaderMap::new();
        assert_eq!(need(&Method::DELETE, Some(FORGET), &headers), ForAll(Manage));
        headers.insert(SESSION, "s".parse().unwrap());
        assert_eq!(need(&Method::DELETE, Some(FORGET), &headers), Of(Work));
        assert_eq!(need(&Method::DELETE, Some("/v1/tasks"), &headers), Of(Manage));
    }
}
