# Runs test programs with our engine installed, and over Lwt's engine on each backend.
set -eu

for program; do
	for way in engine uring kaio threads; do
		echo "$program, $way"
		RINGWAY_TEST_WAY=$way "$program" --compact
	done
done
