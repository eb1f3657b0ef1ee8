//! Where the Python packages of the workers lie.

use std::path::{Path, PathBuf};

use super::{Config, ConfigError};

/// The folder of the Python packages `klbr` and `klbr_hooks`: KLBR_PYTHON_PATH, else `python_path`,
/// else beside the program where an installation or a checkout has it.
pub fn python_path(config: &Config) -> Result<PathBuf, ConfigError> {
    let named = std::env::var_os("KLBR_PYTHON_PATH").filter(|path| !path.is_empty()).map(PathBuf::from);
    let looked_in = match named.or_else(|| config.python_path.clone()) {
        // What somebody named is taken, or wrong: never quietly another one.
        Some(path) => vec![path],
        None => std::env::current_exe().map(|program| beside(&program)).unwrap_or_default(),
    };
    let found = looked_in.iter().find(|path| path.join("klbr").is_dir()).cloned();
    found.ok_or(ConfigError::NoPython { looked_in })
}

/// Where the Python packages lie for a program at this path.
fn beside(program: &Path) -> Vec<PathBuf> {
    let prefix = program.parent().and_then(Path::parent);
    let installed = prefix
        .into_iter()
        .flat_map(|prefix| [prefix.join("lib/klbr/python"), prefix.join("share/klbr/python")]);
    let checkout = program
        .ancestors()
        .filter(|folder| folder.file_name().is_some_and(|name| name == "target"))
        .filter_map(|target| target.parent().map(|checkout| checkout.join("python")));
    installed.chain(checkout).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_lie_beside_an_installed_program_and_beside_a_checkouts_target() {
        let shown = |program: &str| beside(Path::new(program)).into_iter().map(|p| p.display().to_string());

        assert!(shown("/usr/bin/klbr").eq(["/usr/lib/klbr/python", "/usr/share/klbr/python"]));
        assert_eq!(shown("/src/klbr/target/debug/klbr").next_back().as_deref(), Some("/src/klbr/python"));
    }
}
