let run f = Domain.join (Domain.spawn f)
