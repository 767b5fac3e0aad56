//! Access to the dashboard: browsers on this host that were given its link.

use fiber_core::random;
use hyper::header::{COOKIE, HOST, HeaderMap};

use crate::hex;

const COOKIE_NAME: &str = "fiber";

/// The secret of a dashboard, and the address that browsers must use.
#[derive(Debug)]
pub(super) struct Access {
    port: u16,
    /// The path of the page. Browsers send cookies to all ports of a host: to other users' servers
    /// on this one. But they send a cookie with a path only below it, and no other server knows
    /// this one.
    path: String,
    token: String,
}

/// The rights of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It has the cookie.
    Granted,
    /// It has the token of the link, and gets the cookie for it.
    Admitted,
    /// It has neither.
    NoToken,
    /// It names another host: a page of that host may be behind it (DNS rebinding).
    OtherHost,
}

impl Access {
    pub(super) fn new(port: u16) -> Access {
        let word = || hex(&random::<16>());
        Access { port, path: format!("/{}/", word()), token: word() }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn link(&self) -> String {
        format!("http://127.0.0.1:{}{}?token={}", self.port, self.path, self.token)
    }

    /// Returns the header `Set-Cookie`.
    pub(super) fn cookie(&self) -> String {
        format!("{COOKIE_NAME}={}; HttpOnly; SameSite=Strict; Path={}", self.token, self.path)
    }

    pub(super) fn judge(&self, headers: &HeaderMap, token: Option<&str>) -> Verdict {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let own = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{}", self.port));
        if !own.iter().any(|own| own == host) {
            return Verdict::OtherHost;
        }
        if token.is_some_and(|token| self.is_token(token)) {
            return Verdict::Admitted;
        }
        let cookies = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
        let mut values = cookies
            .flat_map(|cookies| cookies.split(';'))
            .filter_map(|cookie| cookie.trim().split_once('='))
            .filter(|(name, _)| *name == COOKIE_NAME);
        match values.any(|(_, value)| self.is_token(value)) {
            true => Verdict::Granted,
            false => Verdict::NoToken,
        }
    }

    /// Compares in a time that does not depend on where texts differ.
    fn is_token(&self, text: &str) -> bool {
        let differ = |(a, b): (u8, u8)| a ^ b;
        text.len() == self.token.len()
            && text.bytes().zip(self.token.bytes()).map(differ).fold(0, |sum, bits| sum | bits) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(host: &str, cookie: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        headers.insert(COOKIE, cookie.parse().unwrap());
        headers
    }

    #[test]
    fn only_the_token_opens_the_page() {
        let access = Access::new(80);
        let token = access.link().split_once("token=").unwrap().1.to_string();
        let cookie = access.cookie().split(';').next().unwrap().to_string();
        let judge = |cookie: &str, token| access.judge(&headers("localhost:80", cookie), token);
        assert_eq!(judge("a=b", Some(&token)), Verdict::Admitted);
        assert_eq!(judge(&format!("a=b; {cookie}"), None), Verdict::Granted);
        let other = Access::new(80).cookie();
        for cookie in ["", "fiber=", "fiber", &cookie[..12], &cookie.replace("fiber", "f"), &other]
        {
            assert_eq!(judge(cookie, None), Verdict::NoToken, "{cookie}");
            assert_eq!(judge(cookie, Some("0")), Verdict::NoToken, "{cookie}");
        }
    }

    #[test]
    fn no_other_server_of_this_host_gets_the_cookie() {
        let access = Access::new(80);
        let path = access.path();
        assert!(path.len() == 34 && path.ends_with('/') && !path.contains(&access.token), "{path}");
        assert_ne!(path, Access::new(80).path());
        assert!(access.cookie().ends_with(&format!("; Path={path}")));
        assert!(access.link().starts_with(&format!("http://127.0.0.1:80{path}?token=")));
    }

    #[test]
    fn another_host_is_refused_even_with_the_token() {
        let access = Access::new(80);
        let cookie = access.cookie();
        for host in ["evil.example:80", "127.0.0.1", "127.0.0.1:81", "127.0.0.1:80.evil.example"] {
            assert_eq!(access.judge(&headers(host, &cookie), None), Verdict::OtherHost, "{host}");
        }
        assert_eq!(access.judge(&HeaderMap::new(), None), Verdict::OtherHost);
    }
}
