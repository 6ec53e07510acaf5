//! Reading the replies of scripts.

use anyqueue::Result;
use redis::Value;

use crate::error::unexpected_reply;

/// Reads a list.
pub(crate) fn list(value: Value) -> Result<Vec<Value>> {
    match value {
        Value::Array(values) => Ok(values),
        _ => Err(unexpected_reply()),
    }
}

/// Reads a list of exactly `N` values.
pub(crate) fn exactly<const N: usize>(value: Value) -> Result<[Value; N]> {
    list(value)?.try_into().map_err(|_| unexpected_reply())
}

/// Reads a number.
pub(crate) fn int(value: &Value) -> Result<i64> {
    match value {
        Value::Int(number) => Ok(*number),
        _ => Err(unexpected_reply()),
    }
}

/// Reads a number that is not negative.
pub(crate) fn count(value: &Value) -> Result<u64> {
    u64::try_from(int(value)?).map_err(|_| unexpected_reply())
}

/// Reads bytes.
pub(crate) fn bytes(value: Value) -> Result<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        Value::SimpleString(text) => Ok(text.into_bytes()),
        Value::Okay => Ok(b"OK".to_vec()),
        _ => Err(unexpected_reply()),
    }
}

/// Reads bytes, if there are any.
pub(crate) fn optional_bytes(value: Value) -> Result<Option<Vec<u8>>> {
    match value {
        Value::Nil => Ok(None),
        value => bytes(value).map(Some),
    }
}

/// Reads a list, if there is one.
pub(crate) fn optional_list(value: Value) -> Result<Option<Vec<Value>>> {
    match value {
        Value::Nil => Ok(None),
        value => list(value).map(Some),
    }
}

/// Reads text.
pub(crate) fn text(value: Value) -> Result<String> {
    String::from_utf8(bytes(value)?).map_err(|_| unexpected_reply())
}
