//! The line that sha256sum prints for a file.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sha2::{Digest, Sha256};

/// Returns a file's line in the list. If a name has a backslash or a line break, these are escaped, and the
/// line begins with a backslash.
pub(crate) fn line(path: &Path) -> std::io::Result<Vec<u8>> {
    let (mut file, mut sha256, mut piece) = (File::open(path)?, Sha256::new(), vec![0; 64 << 10]);
    while let length @ 1.. = file.read(&mut piece)? {
        sha256.update(piece.get(..length).unwrap_or_default());
    }
    let escape = |byte: &u8| match byte {
        b'\\' => br"\\".to_vec(),
        b'\n' => br"\n".to_vec(),
        b'\r' => br"\r".to_vec(),
        other => vec![*other],
    };
    let plain = path.as_os_str().as_bytes();
    let name: Vec<u8> = plain.iter().flat_map(escape).collect();
    let mark: &[u8] = if name.len() > plain.len() { br"\" } else { b"" };
    let sum = sha256.finalize().iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    Ok([mark, sum.as_bytes(), b"  ", &name, b"\n"].concat())
}
