//! Windows, which determine the messages that the server stores together in one hash.

use anyqueue::MessageId;

/// The length of a window, 16 milliseconds, as a mask for the last byte of the time. Scripts have the same
/// constant, `WINDOW_MS`.
const MASK: u8 = !(16 - 1);

/// 16 milliseconds of the time with which a version 7 id begins; `None` for other ids.
pub(crate) type Window = Option<[u8; 6]>;

pub(crate) fn window(id: MessageId) -> Window {
    let [_, _, _, _, _, _, version, ..] = id.as_bytes();
    (version >> 4 == 7).then(|| start(id))
}

/// Returns the name of the window of an id that begins like this, if the id has a time. Earlier windows have
/// no larger ids.
pub(crate) fn start(id: MessageId) -> [u8; 6] {
    let mut start = [0; 6];
    start.iter_mut().zip(id.as_bytes()).for_each(|(to, byte)| *to = *byte);
    let [.., last] = &mut start;
    *last &= MASK;
    start
}

/// Returns the lengths of runs of ids in the same window, two bytes each.
pub(crate) fn runs(ids: impl Iterator<Item = MessageId>) -> Vec<u8> {
    let (mut runs, mut last) = (Vec::new(), None);
    for id in ids {
        let window = window(id);
        match &mut last {
            Some((same, count)) if *same == window && *count < u16::MAX => *count += 1,
            _ => {
                runs.extend(
                    last.replace((window, 1_u16)).into_iter().flat_map(|(_, count)| count.to_be_bytes()),
                );
            }
        }
    }
    runs.extend(last.into_iter().flat_map(|(_, count)| count.to_be_bytes()));
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An id of this time and version.
    fn id(milliseconds: u64, version: u8) -> MessageId {
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&milliseconds.to_be_bytes()[2..]);
        bytes[6] = version << 4;
        MessageId::from_bytes(bytes)
    }

    #[test]
    fn ids_of_sixteen_milliseconds_share_a_window_and_those_without_time_another() {
        assert_eq!(window(id(0x1_000f, 7)), window(id(0x1_0000, 7)));
        assert_ne!(window(id(0x1_000f, 7)), window(id(0x1_0010, 7)));
        assert_eq!((window(id(1, 4)), window(id(1, 8))), (None, None));
    }

    #[test]
    fn runs_count_what_follows_one_another() {
        let ids = [id(1, 7), id(2, 7), id(300, 7), id(300, 4), id(900, 4), id(1, 7)];
        assert_eq!(runs(ids.into_iter()), [0, 2, 0, 1, 0, 2, 0, 1]);
        assert_eq!(runs([].into_iter()), []);
    }
}
