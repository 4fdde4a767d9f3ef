//! The programs in `docs/data-engines.md` need crates that this workspace does not have, or not in
//! these versions. They are those in the READMEs of the crates they show, which compile them.

const PAGE: &str = include_str!("../../../docs/data-engines.md");
const READMES: [&str; 2] = [
    include_str!("../../ringway-object-store/README.md"),
    include_str!("../../../datafusion/ringway-datafusion/README.md"),
];

/// The Rust programs in a page.
fn programs(page: &str) -> Vec<&str> {
    let blocks = page.split("```rust").skip(1);
    let code = blocks.filter_map(|block| block.split_once('\n')?.1.split("```").next());
    code.filter(|code| code.contains("#[tokio::main]")).collect()
}

#[test]
fn each_program_is_compiled_with_a_readme() {
    let compiled: Vec<_> = READMES.into_iter().flat_map(programs).collect();
    let shown = programs(PAGE);
    for host in ["object_store", "parquet", "datafusion"] {
        let uses = format!("use {host}::");
        assert!(shown.iter().any(|program| program.contains(&uses)), "{host}: no program");
    }
    for program in shown {
        assert!(compiled.contains(&program), "in no README that is compiled:\n{program}");
    }
}
