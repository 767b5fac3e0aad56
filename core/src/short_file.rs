//! Source files as people read them.

/// Returns a source file without the place of the toolchain or of cargo's registry.
pub fn short_file(file: &str) -> &str {
    let after = |marker: &str| file.split_once(marker)?.1.split_once('/');
    let short = after("/rustc/").or_else(|| after("/registry/src/"));
    short.map_or(file, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_cargos_registry_are_named_from_their_package_on() {
        let file = "/home/anna/.cargo/registry/src/index.io-1/a-1.0/src/a.rs";
        assert_eq!(short_file(file), "a-1.0/src/a.rs");
        assert_eq!(short_file("src/main.rs"), "src/main.rs");
    }
}
