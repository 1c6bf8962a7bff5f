"""The rules of the Haizea lease manager, as one of the ways to plan; times are whole seconds.

For comparing with the ancestor's own outcomes and for sites that want its behaviour: leases may be
placed for less than their duration and suspended, suspension and resumption take booked time, and a
node is chosen by a score. The general planner (`planning.planner`) does not use this package.
`docs/planner-rules.md` says rule by rule which of the two keeps it.
"""
