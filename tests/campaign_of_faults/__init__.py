"""What testers of databases would try on a loop that has a journal, beside kills and cuts.

It looks into the package, unlike benchmarks; ``python tests/benchmarks faults --files N`` runs it.
"""
