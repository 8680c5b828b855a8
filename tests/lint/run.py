"""Run every repository rule: python tests/lint/run.py"""

import sys

import includes
import paths
import sizes
import todo

RULES = (sizes, includes, paths, todo)


def main() -> int:
    errors = 0
    for rule in RULES:
        findings = sorted(rule.check())
        for finding in findings:
            print(finding)
        hard = sum(not finding.soft for finding in findings)
        print(f"{rule.__name__}: {'ok' if hard == 0 else f'{hard} error(s)'}")
        errors += hard
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
