//! Secrets that a parent gives its child in the environment or on standard input.

#![allow(unsafe_code)]

use std::ffi::{CString, OsString};
use std::fmt;

use crate::at_exit::has_one_thread;

/// A text that no message shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Returns the text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for Secret {
    fn from(text: T) -> Secret {
        Secret(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Takes the variables `plain` and `secret` out of this process's environment, so that programs
/// that it starts do not inherit them. Overwrites the value of `secret` in memory, so that
/// `/proc/self/environ` no longer shows it.
///
/// Returns `None` if other threads run: the environment can't be changed safely then.
pub fn take_variables(plain: &str, secret: &str) -> Option<[Option<OsString>; 2]> {
    if !has_one_thread() {
        return None;
    }
    let values = [plain, secret].map(std::env::var_os);
    if let Ok(name) = CString::new(secret) {
        // SAFETY: this is the only thread (just counted), so nothing else reads the environment.
        // `getenv` returns a string of this process's environment, which is writable and which no
        // reference borrows: `var_os` has copied it.
        unsafe {
            let value = libc::getenv(name.as_ptr());
            if !value.is_null() {
                std::ptr::write_bytes(value, b'-', libc::strlen(value));
            }
        }
    }
    // SAFETY: this is the only thread, and it starts none before this returns.
    [plain, secret].iter().for_each(|name| unsafe { std::env::remove_var(name) });
    Some(values)
}

/// Returns the secret that a variable with this value stands for: the value itself or, if it is
/// `-`, the next line of standard input.
///
/// Returns `None` if the secret is not UTF-8, or standard input has no such line.
pub fn read_secret(value: OsString) -> Option<String> {
    let value = value.into_string().ok()?;
    if value != "-" {
        return Some(value);
    }
    let mut line = Vec::new();
    // Byte by byte, because the rest of the input belongs to the program.
    while !line.ends_with(b"\n") {
        let mut byte = [0];
        if rustix::io::retry_on_intr(|| rustix::io::read(rustix::stdio::stdin(), &mut byte)).ok()?
            == 0
        {
            return None;
        }
        line.push(byte[0]);
    }
    line.pop();
    String::from_utf8(line).ok()
}

/// Replaces standard input, from which secrets were read, by `/dev/null`.
pub fn close_stdin() {
    // Without that device, standard input stays at its end, which reads the same.
    if let Ok(null) = std::fs::File::open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(null);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", Some(Secret::from("hush"))), "Some(Secret(…))");
    }
}
