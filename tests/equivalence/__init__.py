"""Does another commit of this repository behave the same? Run both beside each other and compare what comes out.

The modules here import no product code, but for those that run inside one version (`core_adapter`, `outputs_side`,
`grow`, `side`): these look every name up in `layouts`, the one place that knows how modules and types are called.
"""
