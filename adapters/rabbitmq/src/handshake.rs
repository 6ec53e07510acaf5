//! The server's handshake, in which it reports its product and version before any login. The client does not
//! expose it, so this takes a separate connection.

use anyqueue::{ErrorKind, Health, Result};
use futures_util::{AsyncReadExt, AsyncWriteExt};
use lapin::tcp::{AMQPUriTcpExt, OwnedTLSConfig};
use lapin::uri::AMQPUri;

use crate::error::{ERRORS, classify};

const PROTOCOL_HEADER: &[u8] = b"AMQP\0\0\x09\x01";
/// The size of a frame's type, channel and length.
const FRAME_HEAD_BYTES: usize = 7;
/// The server's first frame has a few hundred bytes.
const MAX_FRAME_BYTES: usize = 64 * 1024;
const PRODUCT: &str = "RabbitMQ";
/// Older versions lack at-least-once dead-lettering in quorum queues.
const OLDEST: (u32, u32) = (3, 10);
/// The version with which this release was tested.
const TESTED: (u32, u32) = (3, 10);

/// What a server reports about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handshake {
    product: String,
    version: String,
}

impl Handshake {
    /// Connects to a server and reads its handshake.
    pub(crate) async fn ask(uri: &AMQPUri, tls: &OwnedTLSConfig) -> Result<Self> {
        let runtime = lapin::runtime::default_runtime().map_err(classify)?;
        let asking = async {
            let mut stream = uri.connect_with_config_async(tls.as_ref(), &runtime).await?;
            stream.write_all(PROTOCOL_HEADER).await?;
            let mut head = [0; FRAME_HEAD_BYTES];
            stream.read_exact(&mut head).await?;
            let [_, _, _, size @ ..] = head;
            let size = usize::try_from(u32::from_be_bytes(size)).unwrap_or(usize::MAX);
            let mut frame = vec![0; size.min(MAX_FRAME_BYTES)];
            stream.read_exact(&mut frame).await?;
            Ok::<_, std::io::Error>(frame)
        };
        let frame = asking.await.map_err(|error| classify(error.into()))?;
        let said = |name| text(&frame, name).unwrap_or_else(|| "unknown".to_owned());
        Ok(Self { product: said("product"), version: said("version") })
    }

    /// Returns the health of this server.
    ///
    /// # Errors
    /// Those of [`check_version`](Self::check_version).
    pub(crate) fn into_health(self) -> Result<Health> {
        let warning = self.check_version()?;
        let mut health = Health::of_version(self.version);
        health.warnings.extend(warning);
        Ok(health)
    }

    /// Returns a warning about this server, if there is a reason for one.
    ///
    /// # Errors
    /// `Incompatible` if it is too old.
    pub(crate) fn check_version(&self) -> Result<Option<String>> {
        let Self { product, version } = self;
        if product != PRODUCT {
            return Ok(Some(format!("{product} {version} is not {PRODUCT}: it was not tested")));
        }
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
        match (numbers.next().flatten(), numbers.next().flatten()) {
            (Some(major), Some(minor)) if (major, minor) < OLDEST => Err(ERRORS.error(
                ErrorKind::Incompatible,
                format!("{PRODUCT} {version} is too old: 3.10 or later is needed"),
            )),
            (Some(major), Some(minor)) if (major, minor) == TESTED => Ok(None),
            _ => Ok(Some(format!("{PRODUCT} {version} was not tested: 3.10 was"))),
        }
    }
}

/// Returns the value of a text field in the server's first frame. A field consists of its name as a short
/// string, its type, and its value as a long string.
fn text(frame: &[u8], name: &str) -> Option<String> {
    let mut field = vec![u8::try_from(name.len()).ok()?];
    field.extend_from_slice(name.as_bytes());
    field.push(b'S');
    let at = frame.windows(field.len()).position(|window| window == field)? + field.len();
    let (length, rest) = frame.get(at..)?.split_first_chunk::<4>()?;
    let value = rest.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    String::from_utf8(value.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handshake(product: &str, version: &str) -> Handshake {
        Handshake { product: product.to_owned(), version: version.to_owned() }
    }

    #[test]
    fn too_old_is_refused_and_what_was_not_tested_is_told() {
        for old in ["3.9.27", "3.8.0", "2.10.1"] {
            let error = handshake("RabbitMQ", old).check_version().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Incompatible);
            assert!(error.message().contains(old), "{error}");
        }
        assert_eq!(handshake("RabbitMQ", "3.10.8").check_version().unwrap(), None);
        for new in ["3.13.7", "4.1.0", "4.0.0-rc.1", "strange"] {
            let warning = handshake("RabbitMQ", new).check_version().unwrap().unwrap();
            assert!(warning.contains(new), "{warning}");
        }
        assert!(handshake("LavinMQ", "2.0.0").check_version().unwrap().unwrap().contains("LavinMQ 2.0.0"));
    }

    #[test]
    fn health_warns_of_what_was_not_tested() {
        let tested = handshake("RabbitMQ", "3.10.8").into_health().unwrap();
        assert_eq!(tested, Health::of_version("3.10.8"));
        let newer = handshake("RabbitMQ", "4.1.0").into_health().unwrap();
        assert_eq!(newer.server_version.as_deref(), Some("4.1.0"));
        assert!(newer.warnings.len() == 1 && newer.warnings[0].contains("was not tested"), "{newer:?}");
        assert_eq!(
            handshake("RabbitMQ", "3.9.27").into_health().unwrap_err().kind(),
            ErrorKind::Incompatible
        );
    }

    #[test]
    fn fields_are_read_and_a_cut_frame_is_no_panic() {
        let frame = b"\0\x0a\0\x0a\0\x09\0\0\0\x27\x07productS\0\0\0\x08RabbitMQ\x07versionS\0\0\0\x063.10.8";
        assert_eq!(text(frame, "product").as_deref(), Some("RabbitMQ"));
        assert_eq!(text(frame, "version").as_deref(), Some("3.10.8"));
        assert_eq!(text(frame, "platform"), None);
        for length in 0..frame.len() {
            assert_eq!(text(&frame[..length], "version"), None);
        }
    }
}
