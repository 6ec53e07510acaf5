//! Partitions for kinds: how to get from a base and a kind to a name, and back.

use std::fmt::Write;

use anyqueue::{Error, IntoPartitionId, PartitionId, Result};

/// Separates the base from the kind, and marks an encoded byte in the kind.
const MARK: char = '.';

/// The partition of a kind, if each kind has one of its own: see
/// [`Partition::per_kind`](crate::Partition::per_kind). Push the tasks of the kind there.
///
/// Its name is the base, a dot, and the kind. In the kind, each byte other than `A-Z a-z 0-9 _ -` is written
/// as a dot and two hexadecimal digits. So two kinds never share a partition, whatever is in their names, and
/// [`partition_kind`] finds the kind again. No base may begin with another base and a dot.
///
/// ```
/// use anyqueue_worker::{kind_partition, partition_kind, task};
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let queue = anyqueue::Queue::new(anyqueue_memory::MemoryQueue::new())?;
/// queue.push(kind_partition("jobs", "send_mail")?, task("send_mail", &"a@example.org")?).await?;
/// assert_eq!(kind_partition("jobs", "send_mail")?.name(), "jobs.send_mail");
/// assert_eq!(kind_partition("jobs", "mail/send")?.name(), "jobs.mail.2fsend");
/// assert_eq!(partition_kind("jobs", &kind_partition("jobs", "mail/send")?)?.as_deref(), Some("mail/send"));
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
///
/// # Errors
/// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) for a bad base, and for a kind that is too long for a
/// name of at most [`MAX_NAME_BYTES`](PartitionId::MAX_NAME_BYTES).
pub fn kind_partition(base: impl IntoPartitionId, kind: &str) -> Result<PartitionId> {
    let base = base.into_partition_id()?;
    let prefix = prefix(&base);
    let name = format!("{prefix}{}", encode(kind));
    if name.len() > PartitionId::MAX_NAME_BYTES {
        let (bytes, most) =
            (name.len() - prefix.len(), PartitionId::MAX_NAME_BYTES.saturating_sub(prefix.len()));
        let shown: String = kind.chars().take(PartitionId::MAX_NAME_BYTES).collect();
        return Err(Error::invalid(format!(
            "the kind {shown:?} takes {bytes} bytes in the name of a partition, and {most} are left beside {prefix:?}: give it a shorter name, or a partition of another name"
        )));
    }
    let partition = PartitionId::new(&name)?;
    Ok(if base.is_dead_letters() { partition.dead_letters() } else { partition })
}

/// The kind that this partition belongs to; `None` if the partition does not come from this base.
///
/// # Errors
/// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) for a bad base.
pub fn partition_kind(base: impl IntoPartitionId, partition: &PartitionId) -> Result<Option<String>> {
    let prefix = prefix(&base.into_partition_id()?);
    let kind = partition.name().strip_prefix(&prefix).and_then(decode);
    // Each kind has exactly one name: a name that is encoded differently comes from elsewhere.
    Ok(kind.filter(|kind| format!("{prefix}{}", encode(kind)) == partition.name()))
}

fn prefix(base: &PartitionId) -> String {
    format!("{}{MARK}", base.name())
}

fn encode(kind: &str) -> String {
    kind.bytes().fold(String::with_capacity(kind.len()), |mut name, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') {
            name.push(char::from(byte));
        } else {
            let _ = write!(name, "{MARK}{byte:02x}"); // a String takes everything
        }
        name
    })
}

fn decode(name: &str) -> Option<String> {
    let mut parts = name.split(MARK);
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (byte, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(byte, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_that_fits_comes_back_and_shares_its_partition_with_none() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut known = std::collections::HashMap::new();
        let hostile =
            ["", ".", "..", "a.b", "a/../b", "a b", "\u{0}", "ä", "%2e", "-_", "\n", "A", "a", ".2e", "2e"];
        let random = (0..20_000).map(|_| {
            let length = random.usize(..5);
            (0..length)
                .map(|_| if random.bool() { random.char('!'..='~') } else { random.char(..) })
                .collect()
        });
        for kind in hostile.into_iter().map(str::to_owned).chain(random) {
            let partition = kind_partition("jobs", &kind).unwrap();
            assert_eq!(partition_kind("jobs", &partition).unwrap().as_ref(), Some(&kind));
            let before = known.insert(partition.clone(), kind.clone());
            assert!(before.is_none_or(|before| before == kind), "{kind:?} shares {partition}");
        }
    }

    #[test]
    fn what_comes_from_elsewhere_has_no_kind() {
        for name in
            ["jobs", "jobs2.a", "job.a", "jobs.a.2", "jobs.a.2E", "jobs.a.zz", "jobs.a.61", "jobs.a.ff"]
        {
            let partition = PartitionId::new(name).unwrap();
            assert_eq!(partition_kind("jobs", &partition).unwrap(), None, "{name}");
        }
    }

    #[test]
    fn a_kind_that_is_too_long_is_refused_with_what_is_left() {
        let longest = "k".repeat(PartitionId::MAX_NAME_BYTES - "jobs.".len());
        assert!(kind_partition("jobs", &longest).is_ok());
        let text = kind_partition("jobs", &format!("{longest}k")).unwrap_err().to_string();
        assert!(text.contains("takes 60 bytes in the name of a partition, and 59 are left"), "{text}");
        assert!(kind_partition("no spaces", "k").is_err());
    }

    #[test]
    fn dead_letters_have_their_kinds_too() {
        let dead = kind_partition(PartitionId::new("jobs").unwrap().dead_letters(), "k").unwrap();
        assert_eq!(dead, kind_partition("jobs", "k").unwrap().dead_letters());
    }
}
