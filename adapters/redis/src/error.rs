//! Errors of Redis and its client, with their kinds and retry classes.

use anyqueue::adapter::Errors;
use anyqueue::{Error, ErrorKind, RetryClass};
use redis::RedisError;

/// The backend's name in errors.
pub(crate) const NAME: &str = "redis";

pub(crate) const ERRORS: Errors = Errors::of(NAME);

/// The error for a reply that no script of this release sends.
pub(crate) fn unexpected_reply() -> Error {
    ERRORS.error(ErrorKind::Incompatible, "the server sent a reply that this release does not know")
}

/// Whether the server answered, so that the connection is still usable.
pub(crate) fn is_server_answer(error: &RedisError) -> bool {
    matches!(error.kind(), redis::ErrorKind::Server(_) | redis::ErrorKind::Extension)
}

/// Whether a replica refused to write.
pub(crate) fn is_from_replica(error: &RedisError) -> bool {
    error.code() == Some("READONLY") || error.detail().is_some_and(|text| text.contains(WRITE_ON_REPLICA))
}

/// The error of a script that writes to a replica.
const WRITE_ON_REPLICA: &str = "against a read only replica";

/// Whether the cluster client's task has ended. Only a bug in it can cause that, and then nothing repairs the
/// connection.
pub(crate) fn is_client_gone(error: &RedisError) -> bool {
    error.is_io_error() && error.to_string().contains("redis_cluster: Unable to")
}

/// Classifies an error while connecting: nothing was sent to the server yet.
pub(crate) fn classify_connect(cause: RedisError, target: &str) -> Error {
    if cause.detail().is_some_and(|text| text.contains("DB index")) {
        return ERRORS
            .invalid(format!("{target}: the database does not exist; see the server's setting `databases`"));
    }
    if is_server_answer(&cause) || cause.kind() == redis::ErrorKind::AuthenticationFailed {
        let classed = classify(cause);
        let text = format!("{target}: {}", classed.message());
        return ERRORS.error(classed.kind(), text).with_retry(before(classed.retry())).with_source(classed);
    }
    if cause.kind() == redis::ErrorKind::MasterNameNotFoundBySentinel {
        let text = format!("{target}: the sentinels know no reachable master of this name");
        return ERRORS.error(ErrorKind::Unavailable, text).with_source(cause);
    }
    if cause.to_string().to_lowercase().contains("certificate") {
        let text = format!(
            "{target}: a certificate was not accepted; see `ca_file`, or `cert_file` and `key_file` if the server asks for one"
        );
        return ERRORS.error(ErrorKind::Unavailable, text).with_retry(RetryClass::Never).with_source(cause);
    }
    ERRORS
        .error(ErrorKind::Unavailable, format!("{target} cannot be reached: is the server running?"))
        .with_source(cause)
}

/// Makes an error repeatable if it occurred before anything was sent, unless a repetition can never succeed.
fn before(retry: RetryClass) -> RetryClass {
    if retry == RetryClass::Never { RetryClass::Never } else { RetryClass::Safe }
}

/// Classifies an error of a call to a cluster, whose slots move between servers. A call that was redirected
/// until its time was over did nothing. A script that could not access a key may have done a part of its
/// work.
pub(crate) fn classify_of_cluster(cause: RedisError) -> Error {
    let text = cause.detail().unwrap_or_default();
    match cause.code() {
        Some("MOVED" | "ASK") => ERRORS.error(
            ErrorKind::Unavailable,
            "the cluster is moving this partition to another server (nothing was changed)",
        )
        .with_retry(RetryClass::Safe)
        .with_source(cause),
        _ if NOT_LOCAL.iter().any(|said| text.contains(said)) => ERRORS.error(
            ErrorKind::Unavailable,
            "the cluster moved a key of this partition during the call: it is not known whether the call took effect",
        )
        .with_retry(RetryClass::MayDuplicate)
        .with_source(cause),
        _ => classify(cause),
    }
}

/// The errors of a script in a cluster if the server does not serve its key, or if no server does.
const NOT_LOCAL: [&str; 2] =
    ["attempted to access a non local key", "attempted to access a key while the cluster"];

/// Classifies an error of a call. If the answer was lost, the script may have run.
pub(crate) fn classify(cause: RedisError) -> Error {
    let classed = if cause.is_timeout() {
        ERRORS
            .error(
                ErrorKind::TimedOut,
                "the server did not answer in time: it is not known whether the call took effect",
            )
            .with_retry(RetryClass::MayDuplicate)
    } else if cause.kind() == redis::ErrorKind::AuthenticationFailed {
        refused_login()
    } else if is_server_answer(&cause) {
        by_code(cause.code().unwrap_or_default(), cause.detail().unwrap_or_default())
    } else {
        ERRORS.error(
            ErrorKind::Unavailable,
            "the connection was lost before the answer came: it is not known whether the call took effect",
        )
        .with_retry(RetryClass::MayDuplicate)
    };
    classed.with_source(cause)
}

/// Classifies an error by its code. The server's own text is included only where it names what is missing; it
/// contains no credentials.
fn by_code(code: &str, text: &str) -> Error {
    let (code, text) = within_script(text).unwrap_or((code, text));
    let safe = RetryClass::Safe;
    match code {
        "WRONGPASS" | "NOAUTH" => refused_login(),
        "NOPERM" => ERRORS.error(ErrorKind::AccessDenied, format!("a permission is missing: {text}")),
        "OOM" => ERRORS.error(
            ErrorKind::Full,
            "the server has reached its maxmemory: nothing was stored; raise it, or let consumers catch up",
        ),
        "READONLY" => ERRORS.error(
            ErrorKind::Unavailable,
            "the server is a read-only replica: connect to the master (nothing was changed)",
        ),
        "LOADING" => ERRORS.error(ErrorKind::Unavailable, "the server is loading its data (nothing was changed)")
            .with_retry(safe),
        "MISCONF" => ERRORS.error(
            ErrorKind::Full,
            "the server refuses writes because it cannot write its data to disk (nothing was changed): see its log",
        ),
        "MASTERDOWN" | "NOREPLICAS" => {
            ERRORS.error(ErrorKind::Unavailable, format!("the server refuses writes (nothing was changed): {text}"))
                .with_retry(safe)
        }
        "BUSY" => ERRORS.error(
            ErrorKind::Unavailable,
            "the server is busy with a script of another client (nothing was changed)",
        )
        .with_retry(safe),
        "CLUSTERDOWN" | "TRYAGAIN" => ERRORS.error(
            ErrorKind::Unavailable,
            format!(
                "the cluster is moving this partition, or does not serve it now (nothing was changed): {text}"
            ),
        )
        .with_retry(safe),
        "MOVED" | "ASK" | "CROSSSLOT" => ERRORS.error(
            ErrorKind::Incompatible,
            "the server belongs to a Redis Cluster: write redis-cluster:// instead of redis://",
        ),
        "WRONGTYPE" => ERRORS.error(
            ErrorKind::Incompatible,
            "a key of this prefix holds something else: choose another prefix, or another database",
        ),
        _ if text.contains("user executing the script") || text.contains("ACL failure in script") => ERRORS.error(
            ErrorKind::AccessDenied,
            format!("a permission is missing: {text}; open the queue again to learn which one"),
        ),
        _ if text.contains("OOM command not allowed") => by_code("OOM", text),
        _ if text.contains("cluster support disabled") => ERRORS.error(
            ErrorKind::Incompatible,
            "the server does not belong to a Redis Cluster: write redis:// instead of redis-cluster://",
        ),
        _ if text.contains(WRITE_ON_REPLICA) => by_code("READONLY", text),
        _ => ERRORS.error(ErrorKind::Internal, format!("the server answered with an error: {code} {text}")),
    }
}

/// Returns the code and text of an error within a script, if the server wraps them. Redis 6.2 answers, for
/// instance, `Error running script (call to f_…): @user_script: 7: -MISCONF Errors writing …`.
fn within_script(text: &str) -> Option<(&str, &str)> {
    let (_, last) = text.strip_prefix("Error running script")?.rsplit_once("@user_script:")?;
    let (_line, said) = last.split_once(": ")?;
    let (code, said) = said.trim_start_matches('-').split_once(' ')?;
    code.bytes().all(|byte| byte.is_ascii_uppercase()).then_some((code, said))
}

fn refused_login() -> Error {
    ERRORS.error(ErrorKind::AccessDenied, "the server refused the login: check user and password")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_apart() {
        let class = |code, text| {
            let error = by_code(code, text);
            (error.kind(), error.retry())
        };
        assert_eq!(class("OOM", "").0, ErrorKind::Full);
        assert_eq!(class("ERR", "OOM command not allowed when used memory").0, ErrorKind::Full);
        assert_eq!(class("NOPERM", ""), (ErrorKind::AccessDenied, RetryClass::Never));
        assert_eq!(class("LOADING", ""), (ErrorKind::Unavailable, RetryClass::Safe));
        assert_eq!(class("MOVED", "").0, ErrorKind::Incompatible);
        assert_eq!(class("SOMETHING", "else").0, ErrorKind::Internal);
    }

    #[test]
    fn what_a_cluster_says_while_it_moves_slots_can_be_repeated() {
        for (answer, retry) in [
            ("MOVED 17 127.0.0.1:7001", RetryClass::Safe),
            ("ASK 17 127.0.0.1:7001", RetryClass::Safe),
            ("TRYAGAIN Multiple keys request during rehashing of slot", RetryClass::Safe),
            ("CLUSTERDOWN Hash slot not served", RetryClass::Safe),
            (
                "ERR Script attempted to access a non local key in a cluster node script: 1a, on 113.",
                RetryClass::MayDuplicate,
            ),
        ] {
            let (code, text) = answer.split_once(' ').unwrap();
            let error = redis::make_extension_error(code.to_owned(), Some(text.to_owned()));
            let error = classify_of_cluster(error);
            assert_eq!((error.kind(), error.retry()), (ErrorKind::Unavailable, retry), "{error}");
        }
    }

    #[test]
    fn what_redis_6_says_of_a_script_is_told_apart_as_well() {
        for (text, kind) in [
            (
                "@user_script:209: @user_script: 209: -MISCONF Errors writing to the AOF file: full",
                ErrorKind::Full,
            ),
            ("@user_script:177: WRONGTYPE Operation against a key", ErrorKind::Incompatible),
            ("@user_script: 12: -OOM command not allowed when used memory > 'maxmemory'.", ErrorKind::Full),
            ("@user_script:3: attempt to index a nil value", ErrorKind::Internal),
        ] {
            let error = by_code("ERR", &format!("Error running script (call to f_92e1): {text}"));
            assert_eq!(error.kind(), kind, "{text}");
        }
    }
}
