//! Renders the records that a benchmark in another language prints: `bench | records [OPTION]...`
//! writes the report as Markdown. `ringway_measure::records` describes the records.
//!
//! ```text
//! --rows WORDS         only rows whose titles have one of these words, separated by commas
//! --page FILE NAME     write the tables into a page, between <!-- NAME: begin --> and its end
//! --charts FOLDER      draw the charts
//! --json FILE          write all figures
//! ```
//!
//! Options take effect in their order: charts before `--rows` have all rows.

use anyhow::Context;
use ringway_measure::records::{Records, replace_in};
use std::path::Path;
use std::{env, fs, io, process};

fn main() -> anyhow::Result<()> {
    let text = io::read_to_string(io::stdin())?;
    let mut records = Records::parse(&text)?;
    let mut page = None;
    let mut arguments = env::args().skip(1);
    while let Some(option) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{option} needs a value"));
        match &*option {
            "--rows" => {
                records.retain(&value()?.split(',').map(str::to_owned).collect::<Vec<_>>());
            }
            "--page" => page = Some((value()?, value()?)),
            "--charts" => records.write_charts(Path::new(&value()?))?,
            "--json" => fs::write(value()?, serde_json::to_string_pretty(&records.rows())?)?,
            _ => anyhow::bail!("unknown option {option}"),
        }
    }
    print!("{}", records.markdown());
    if let Some((file, name)) = page {
        let marks = ["begin", "end"].map(|mark| format!("<!-- {name}: {mark} -->"));
        replace_in(Path::new(&file), &marks[0], &marks[1], &records.tables())?;
    }
    if records.has_failures() {
        process::exit(1);
    }
    Ok(())
}
