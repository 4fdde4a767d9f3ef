//! The rows of an answer as text, to compare answers exactly.

use anyhow::{Context, Result};
use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use std::fmt;

/// The answer to a query: the names of its columns and its rows. Equal answers have the same rows
/// in the same order, except that rows which `ORDER BY` does not tell apart may be in any order.
///
/// Values are text, exact for decimals and floating-point numbers.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows; those that `ORDER BY` does not tell apart are sorted.
    pub rows: Vec<Vec<String>>,
}

impl Answer {
    /// Runs a query.
    pub async fn of(session: &SessionContext, sql: &str) -> Result<Self> {
        let frame = session.sql(sql).await?;
        let columns: Vec<_> =
            frame.schema().fields().iter().map(|field| field.name().clone()).collect();
        let order = order_by(frame.logical_plan());
        Self::from_batches(columns, &frame.collect().await?, &order)
    }

    /// Makes an answer from batches; `order` are the columns of `ORDER BY`.
    pub fn from_batches(
        columns: Vec<String>,
        batches: &[RecordBatch],
        order: &[String],
    ) -> Result<Self> {
        let options = FormatOptions::new().with_null("NULL").with_display_error(false);
        let mut rows = Vec::new();
        for batch in batches {
            let formatters: Result<Vec<_>, _> = batch
                .columns()
                .iter()
                .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
                .collect();
            let formatters = formatters?;
            for row in 0..batch.num_rows() {
                let row: Result<Vec<_>, _> =
                    formatters.iter().map(|column| column.value(row).try_to_string()).collect();
                rows.push(row?);
            }
        }
        let keys: Result<Vec<_>> = order
            .iter()
            .map(|name| {
                let position = columns.iter().position(|column| column == name);
                position.with_context(|| format!("ORDER BY {name}: no such column in {columns:?}"))
            })
            .collect();
        sort_ties(&mut rows, &keys?);
        Ok(Self { columns, rows })
    }
}

/// The columns of the outermost `ORDER BY` of a plan; none if it has no order.
pub fn order_by(plan: &LogicalPlan) -> Vec<String> {
    match plan {
        LogicalPlan::Sort(sort) => {
            sort.expr.iter().map(|sort| sort.expr.qualified_name().1).collect()
        }
        LogicalPlan::Limit(limit) => order_by(&limit.input),
        LogicalPlan::Projection(projection) => order_by(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => order_by(&alias.input),
        _ => Vec::new(),
    }
}

/// Sorts each run of rows that are equal in the columns `keys`.
fn sort_ties(rows: &mut [Vec<String>], keys: &[usize]) {
    let equal = |a: &Vec<String>, b: &Vec<String>| keys.iter().all(|&key| a[key] == b[key]);
    for ties in rows.chunk_by_mut(equal) {
        ties.sort();
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.columns.join(" | "))?;
        for row in self.rows.iter().take(20) {
            writeln!(f, "{}", row.join(" | "))?;
        }
        writeln!(f, "({} rows)", self.rows.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &[&str]) -> Vec<Vec<String>> {
        text.iter().map(|row| row.split(' ').map(str::to_owned).collect()).collect()
    }

    #[test]
    fn only_ties_are_sorted() {
        let mut ordered = rows(&["2 b", "2 a", "1 z", "1 c", "3 a"]);
        sort_ties(&mut ordered, &[0]);
        assert_eq!(ordered, rows(&["2 a", "2 b", "1 c", "1 z", "3 a"]));
        let mut unordered = rows(&["2 b", "1 z", "1 a"]);
        sort_ties(&mut unordered, &[]);
        assert_eq!(unordered, rows(&["1 a", "1 z", "2 b"]));
    }
}
